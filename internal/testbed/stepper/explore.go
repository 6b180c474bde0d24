package stepper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Step makes a session's next statement when its turn comes, from what was answered so far.
type Step func(so Run) string

// SQL is the step that is one statement, whatever happened before. It may be several, separated by semicolons: they are
// sent as one message, and its answer is that of the last one that returns rows.
func SQL(statement string) Step { return func(Run) string { return statement } }

// A Part is what one session does.
type Part struct {
	Name  string
	First string // taken before the interleaving begins, "" for nothing
	Steps []Step
}

// A Scene is several sessions on the same rows.
type Scene struct {
	Given string // makes the rows; runs ahead of every interleaving and starts from whatever the one before left
	Parts []Part
	// Check judges one interleaving after its sessions have ended, from the rows and from what was answered.
	Check func(ctx context.Context, conn *pgx.Conn, run Run) error
}

// A Line is one step taken. A step that was blocked has two: [Blocked] when it was taken, its answer when it got one.
type Line struct{ Part, Statement, Answer string }

// A Run is one interleaving, in the order in which the answers came.
type Run []Line

// Answer returns the last answer that a part got, "" before its first.
func (r Run) Answer(part string) string {
	for _, line := range slices.Backward(r) {
		if line.Part == part {
			return line.Answer
		}
	}
	return ""
}

// String shows the run for people, a line per step.
func (r Run) String() string {
	var text strings.Builder
	for _, line := range r {
		fmt.Fprintf(&text, "%s: %s: %s\n", line.Part, line.Statement, line.Answer)
	}
	return text.String()
}

// Explore runs every interleaving of the scene's parts that the server's locks allow: wherever a session may go on, the
// turn is given to each in some run; one that waits for another gets no turn until it is free. It returns how many
// interleavings there were, and stops at the first that fails its check, with the run in the error.
//
// Where the server itself chooses, between two that wait for one transaction, what follows the choice that it made first
// is explored whole, of the other as much as comes up.
func Explore(ctx context.Context, url string, scene Scene) (int, error) {
	stage := NewStage(url)
	defer stage.Close()
	return stage.Explore(ctx, scene)
}

// Explore is the same on sessions that scenes before it may have used: a session that has run a function before runs it faster.
func (s *Stage) Explore(ctx context.Context, scene Scene) (n int, err error) {
	on, err := s.cast(ctx, scene)
	if err != nil {
		s.Close()
		return 0, err
	}
	defer func() {
		if err == nil {
			err = on.leave(ctx)
		}
		if err != nil {
			on.abort()
			s.Close()
		}
	}()
	var path []fork
	for n := 1; ; n++ {
		path, err = on.play(ctx, path)
		for try := 1; err == errOther && try < tries; try++ {
			path, err = on.play(ctx, path)
		}
		if err != nil {
			return n, fmt.Errorf("interleaving %d: %w\n%s", n, err, on.run)
		}
		path = after(path)
		if len(path) == 0 {
			return n, nil
		}
	}
}

// errOther says that the server chose otherwise than in the run before; tries bounds how often it is asked again.
var errOther = errors.New("the run cannot be repeated: another session was blocked the last time")

const tries = 100

// A fork is a moment of a run: who could go on, and who did.
type fork struct {
	ready []int
	taken int
}

// after returns the beginning of the next run in depth-first order, or nothing after the last.
func after(path []fork) []fork {
	for len(path) > 0 {
		last := &path[len(path)-1]
		if last.taken++; last.taken < len(last.ready) {
			return path
		}
		path = path[:len(path)-1]
	}
	return nil
}

// play takes the turns of path, then always the first that is possible, and returns the path it took. If the server
// does not follow the path the run is played to its end and judged all the same, and answered with errOther.
func (c *cast) play(ctx context.Context, path []fork) ([]fork, error) {
	if err := c.reset(ctx); err != nil {
		return nil, err
	}
	var other error
	for turn := 0; ; turn++ {
		ready, err := c.turns(ctx)
		if err != nil {
			return nil, err
		}
		if len(ready) == 0 {
			return path, cmp.Or(c.scene.Check(ctx, c.observer, c.run), other)
		}
		who := ready[0]
		switch {
		case other != nil:
		case turn == len(path):
			path = append(path, fork{ready: ready})
		case slices.Equal(path[turn].ready, ready):
			who = ready[path[turn].taken]
		default:
			other = errOther
		}
		if err := c.take(ctx, who); err != nil {
			return nil, err
		}
	}
}

// turns returns who may go on, nobody when all have ended. If all wait for each other the server will end one.
func (c *cast) turns(ctx context.Context) (ready []int, err error) {
	for {
		ready = c.ready()
		if len(ready) > 0 || c.waiting() == 0 {
			return ready, nil
		}
		if !c.receive(limit) {
			return nil, errors.New("left blocked")
		}
		if err := c.settle(ctx); err != nil {
			return nil, err
		}
	}
}

// limits of one wait: for a quick answer before the server is asked who is blocked, and between two questions.
const (
	quick  = time.Millisecond
	glance = 300 * time.Microsecond
)

// take gives the turn to a player and waits until everybody has an answer or is blocked.
func (c *cast) take(ctx context.Context, turn int) error {
	p := c.players[turn]
	statement := p.part.Steps[p.next](c.run)
	p.next++
	c.send(ctx, p, statement)
	c.receive(quick)
	if err := c.settle(ctx); err != nil {
		return err
	}
	if p.busy {
		c.run = append(c.run, Line{p.part.Name, statement, Blocked})
	}
	return nil
}

// settle returns when no statement is running: each has its answer or is blocked.
func (c *cast) settle(ctx context.Context) error {
	deadline := time.Now().Add(limit)
	for seen := 0; seen < looks && c.waiting() > 0; {
		blocked, err := c.blocked(ctx)
		if err != nil {
			return err
		}
		seen++
		if c.receive(glance) || !blocked {
			seen = 0
		}
		if time.Now().After(deadline) {
			return errors.New("neither done nor blocked")
		}
	}
	return c.broken
}

// blocked reports whether every statement that has no answer is blocked.
func (c *cast) blocked(ctx context.Context) (all bool, err error) {
	var pids []uint32
	for _, p := range c.players {
		if p.busy {
			pids = append(pids, p.conn.PID())
		}
	}
	return all, c.observer.QueryRow(ctx, allBlocked, pids).Scan(&all)
}
