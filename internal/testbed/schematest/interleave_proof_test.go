//go:build proof

package schematest_test

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

// A part is what one session does: its statements, one a step. Several statements separated by
// semicolons are sent as one message. The answer is that of the last one that returns rows.
type part struct {
	name  string
	first string // runs before the interleaving begins; "" for none
	steps []string
}

// An act is several sessions on the same rows.
type act struct {
	// given creates the rows. It runs before every interleaving, on the rows that the previous one
	// left.
	given string
	parts []part
	// check judges one interleaving after its sessions have ended, by the rows and the answers.
	check func(ctx context.Context, conn *pgx.Conn, run run) error
}

// told is one answer to a step. A blocked step has two: [blocked], and later its answer.
type told struct{ part, statement, answer string }

// A run is one interleaving, in the order of the answers.
type run []told

// String returns the run with one line per step.
func (r run) String() string {
	var text strings.Builder
	for _, line := range r {
		fmt.Fprintf(&text, "%s: %s: %s\n", line.part, line.statement, line.answer)
	}
	return text.String()
}

// explore runs every interleaving of the act's parts that the server's locks allow. At each point
// where several sessions can go on, each of them goes on in some run. A session that waits for
// another goes on when it is free.
//
// explore returns the number of interleavings. It stops at the first one that fails its check, and
// the error contains the run.
//
// If two sessions wait for one transaction, the server chooses which goes on. The runs after its
// first choice are explored completely. The runs after the other choice are explored as far as they
// happen.
func (s *stage) explore(ctx context.Context, a act) (n int, err error) {
	on, err := s.cast(ctx, a)
	if err != nil {
		s.close()
		return 0, err
	}
	defer func() {
		if err == nil {
			err = on.leave(ctx)
		}
		if err != nil {
			on.abort()
			s.close()
		}
	}()
	var path []fork
	for n := 1; ; n++ {
		path, err = on.play(ctx, path)
		for try := 1; err == errOther && try < repetitions; try++ {
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

// errOther means that the server chose differently than in the previous run. repetitions bounds the
// repetitions.
var errOther = errors.New("the run cannot be repeated: another session was blocked the last time")

const repetitions = 100

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
			return path, cmp.Or(c.act.check(ctx, c.observer, c.run), other)
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
		if !c.receive(stepLimit) {
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
	stepLimit = 20 * time.Second // bounds each wait
	quick     = time.Millisecond
	glance    = 300 * time.Microsecond
)

// take runs the next step of a player and waits until every player has an answer or is blocked.
func (c *cast) take(ctx context.Context, turn int) error {
	p := c.players[turn]
	statement := p.part.steps[p.next]
	p.next++
	c.send(ctx, p, statement)
	c.receive(quick)
	if err := c.settle(ctx); err != nil {
		return err
	}
	if p.busy {
		c.run = append(c.run, told{p.part.name, statement, blocked})
	}
	return nil
}

// settle returns when every statement has its answer or is blocked.
func (c *cast) settle(ctx context.Context) error {
	deadline := time.Now().Add(stepLimit)
	for seen := 0; seen < looks && c.waiting() > 0; {
		waits, err := c.allBlocked(ctx)
		if err != nil {
			return err
		}
		seen++
		if c.receive(glance) || !waits {
			seen = 0
		}
		if time.Now().After(deadline) {
			return errors.New("neither done nor blocked")
		}
	}
	return c.broken
}

// allBlocked reports whether every unanswered statement is blocked.
func (c *cast) allBlocked(ctx context.Context) (all bool, err error) {
	var pids []uint32
	for _, p := range c.players {
		if p.busy {
			pids = append(pids, p.conn.PID())
		}
	}
	return all, c.observer.QueryRow(ctx, allBlocked, pids).Scan(&all)
}
