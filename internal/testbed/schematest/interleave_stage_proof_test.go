//go:build proof

package schematest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A stage is the sessions on one database that explore scenes, one scene after another.
type stage struct {
	url      string
	observer *pgx.Conn
	sessions []*pgconn.PgConn
}

// newStage returns a stage that connects at first use. Close it at the end.
func newStage(url string) *stage { return &stage{url: url} }

// close ends the sessions. The stage may be used again and then connects anew.
func (s *stage) close() {
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	for _, conn := range s.sessions {
		_ = conn.Close(ctx)
	}
	if s.observer != nil {
		_ = s.observer.Close(ctx)
	}
	s.observer, s.sessions = nil, nil
}

// A cast is the sessions of one scene, for all its runs.
type cast struct {
	act      act
	observer *pgx.Conn
	players  []*player
	answers  chan reply
	run      run
	broken   error
}

// A player is one session of the stage.
type player struct {
	part  part
	conn  *pgconn.PgConn
	next  int    // next step
	busy  bool   // the last statement has no answer yet
	asked string // the last statement
}

type reply struct {
	by     *player
	answer string
	err    error // set only if the server did not answer
}

// cast gives each part of a scene a session.
func (s *stage) cast(ctx context.Context, a act) (*cast, error) {
	var err error
	if s.observer == nil {
		if s.observer, err = pgx.Connect(ctx, s.url); err != nil {
			return nil, err
		}
	}
	c := &cast{act: a, observer: s.observer, answers: make(chan reply, len(a.parts))}
	for i, part := range a.parts {
		if i == len(s.sessions) {
			conn, err := pgconn.Connect(ctx, s.url)
			if err != nil {
				return nil, err
			}
			s.sessions = append(s.sessions, conn)
		}
		c.players = append(c.players, &player{part: part, conn: s.sessions[i]})
	}
	return c, nil
}

// leave resets the sessions.
func (c *cast) leave(ctx context.Context) error {
	for _, p := range c.players {
		if _, err := p.conn.Exec(ctx, "rollback; reset all").ReadAll(); err != nil {
			return err
		}
	}
	return nil
}

// abort cancels the running statements.
func (c *cast) abort() {
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	for _, p := range c.players {
		if p.busy {
			_ = p.conn.CancelRequest(ctx)
			c.receive(stepLimit)
		}
	}
}

// reset rolls back the last run and creates the rows again.
func (c *cast) reset(ctx context.Context) error {
	c.run = nil
	for _, p := range c.players {
		p.next = 0
		if _, err := p.conn.Exec(ctx, "rollback").ReadAll(); err != nil {
			return err
		}
	}
	if _, err := c.observer.PgConn().Exec(ctx, c.act.given).ReadAll(); err != nil {
		return fmt.Errorf("given: %w", err)
	}
	for _, p := range c.players {
		if _, err := p.conn.Exec(ctx, p.part.first).ReadAll(); err != nil {
			return fmt.Errorf("%s: %w", p.part.name, err)
		}
	}
	return nil
}

// ready returns the players that can take a step.
func (c *cast) ready() (turns []int) {
	for i, p := range c.players {
		if !p.busy && p.next < len(p.part.steps) {
			turns = append(turns, i)
		}
	}
	return turns
}

// waiting counts the statements without an answer.
func (c *cast) waiting() (n int) {
	for _, p := range c.players {
		if p.busy {
			n++
		}
	}
	return n
}

func (c *cast) send(ctx context.Context, p *player, statement string) {
	p.busy, p.asked = true, statement
	go func() {
		answer, err := answerTo(ctx, p.conn, statement)
		c.answers <- reply{p, answer, err}
	}()
}

// receive records one answer if it comes in time. The error of a broken connection goes to
// c.broken.
func (c *cast) receive(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case r := <-c.answers:
		c.run = append(c.run, told{r.by.part.name, r.by.asked, r.answer})
		r.by.busy = false
		c.broken = errors.Join(c.broken, r.err)
		return true
	case <-timer.C:
		return false
	}
}

// answerTo returns the rows in PostgreSQL's text format, columns joined by blanks and rows by
// commas. For an error it returns the SQLSTATE.
func answerTo(ctx context.Context, conn *pgconn.PgConn, statement string) (string, error) {
	results, err := conn.Exec(ctx, statement).ReadAll()
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) {
		return refusal.Code, nil
	}
	if err != nil {
		return "", err
	}
	var lines []string
	for _, result := range results {
		if len(result.FieldDescriptions) > 0 {
			lines = nil
		}
		for _, row := range result.Rows {
			line := make([]string, len(row))
			for i, value := range row {
				line[i] = string(value)
			}
			lines = append(lines, strings.Join(line, " "))
		}
	}
	return strings.Join(lines, ", "), nil
}
