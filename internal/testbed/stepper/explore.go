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

// A Step returns a session's next statement, given the answers so far.
type Step func(so Run) string

// SQL returns a step with a fixed statement. Several statements separated by semicolons are sent as
// one message. The answer is that of the last one that returns rows.
func SQL(statement string) Step { return func(Run) string { return statement } }

// A Part is the sequence of steps of one session.
type Part struct {
	Name  string
	First string // runs before the interleaving begins; "" for none
	Steps []Step
}

// A Scene is several sessions on the same rows.
type Scene struct {
	// Given creates the rows. It runs before every interleaving, on the rows that the previous one
	// left.
	Given string
	Parts []Part
	// Check judges one interleaving after its sessions have ended, by the rows and the answers.
	Check func(ctx context.Context, conn *pgx.Conn, run Run) error
}

// A Line is one answer to a step. A blocked step has two lines: [Blocked], and later its answer.
type Line struct{ Part, Statement, Answer string }

// A Run is one interleaving, in the order of the answers.
type Run []Line

// Answer returns the latest answer of a part, "" before its first.
func (r Run) Answer(part string) string {
	for _, line := range slices.Backward(r) {
		if line.Part == part {
			return line.Answer
		}
	}
	return ""
}

// String returns the run with one line per step.
func (r Run) String() string {
	var text strings.Builder
	for _, line := range r {
		fmt.Fprintf(&text, "%s: %s: %s\n", line.Part, line.Statement, line.Answer)
	}
	return text.String()
}

// Explore runs every interleaving of the scene's parts that the server's locks allow. At each point
// where several sessions can go on, each of them goes on in some run. A session that waits for
// another goes on when it is free.
//
// Explore returns the number of interleavings. It stops at the first one that fails its check, and
// the error contains the run.
//
// If two sessions wait for one transaction, the server chooses which goes on. The runs after its
// first choice are explored completely. The runs after the other choice are explored as far as they
// happen.
func Explore(ctx context.Context, url string, scene Scene) (int, error) {
	stage := NewStage(url)
	defer stage.Close()
	return stage.Explore(ctx, scene)
}

// Explore is [Explore] on sessions that earlier scenes may have used. A function runs faster in a
// session that has run it before.
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

// errOther means that the server chose differently than in the previous run. tries bounds the
// repetitions.
var errOther = errors.New("the run cannot be repeated: another session was blocked the last time")

const tries = 100

// A fork is a point of a run: the sessions that could go on, and the one that did.
type fork struct {
	ready []int
	taken int
}

// after returns the prefix of the next run in depth-first order, or nil after the last.
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

// play follows path and then always takes the first possible session. It returns the path that it
// took. If the server does not follow path, play completes and judges the run and returns errOther.
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

// turns returns the sessions that can go on, or none when all have ended. If all wait for each
// other, the server ends one (deadlock).
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

// quick is how long to wait for an answer before asking the server which sessions are blocked.
// glance is the time between two such questions.
const (
	quick  = time.Millisecond
	glance = 300 * time.Microsecond
)

// take runs the next step of a player and waits until every player has an answer or is blocked.
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

// settle returns when every statement has its answer or is blocked.
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

// blocked reports whether every unanswered statement is blocked.
func (c *cast) blocked(ctx context.Context) (all bool, err error) {
	var pids []uint32
	for _, p := range c.players {
		if p.busy {
			pids = append(pids, p.conn.PID())
		}
	}
	return all, c.observer.QueryRow(ctx, allBlocked, pids).Scan(&all)
}
