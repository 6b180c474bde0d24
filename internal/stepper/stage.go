package stepper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A stage is the connections that a scene is played on, run after run.
type stage struct {
	scene    Scene
	observer *pgx.Conn
	players  []*player
	answers  chan reply
	run      Run
	broken   error
}

// A player is one session of the stage.
type player struct {
	part  Part
	conn  *pgconn.PgConn
	next  int    // the step to take
	busy  bool   // asked has no answer yet
	asked string // the last statement
}

type reply struct {
	by     *player
	answer string
	err    error // anything but an answer of the server
}

func raise(ctx context.Context, url string, scene Scene) (*stage, error) {
	s := &stage{scene: scene, answers: make(chan reply, len(scene.Parts))}
	var err error
	if s.observer, err = pgx.Connect(ctx, url); err != nil {
		return nil, err
	}
	for _, part := range scene.Parts {
		conn, err := pgconn.Connect(ctx, url)
		if err != nil {
			s.close()
			return nil, err
		}
		s.players = append(s.players, &player{part: part, conn: conn})
	}
	return s, nil
}

func (s *stage) close() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, p := range s.players {
		if p.busy {
			_ = p.conn.CancelRequest(ctx)
			s.receive(limit)
		}
		_ = p.conn.Close(ctx)
	}
	_ = s.observer.Close(ctx)
}

// reset ends what the last run left open and makes the rows anew.
func (s *stage) reset(ctx context.Context) error {
	s.run = nil
	for _, p := range s.players {
		p.next = 0
		if _, err := p.conn.Exec(ctx, "rollback").ReadAll(); err != nil {
			return err
		}
	}
	if _, err := s.observer.PgConn().Exec(ctx, s.scene.Given).ReadAll(); err != nil {
		return fmt.Errorf("given: %w", err)
	}
	for _, p := range s.players {
		if _, err := p.conn.Exec(ctx, p.part.First).ReadAll(); err != nil {
			return fmt.Errorf("%s: %w", p.part.Name, err)
		}
	}
	return nil
}

// ready returns the players that may take a step.
func (s *stage) ready() (turns []int) {
	for i, p := range s.players {
		if !p.busy && p.next < len(p.part.Steps) {
			turns = append(turns, i)
		}
	}
	return turns
}

// waiting counts the statements that have no answer yet.
func (s *stage) waiting() (n int) {
	for _, p := range s.players {
		if p.busy {
			n++
		}
	}
	return n
}

func (s *stage) send(ctx context.Context, p *player, statement string) {
	p.busy, p.asked = true, statement
	go func() {
		answer, err := answerTo(ctx, p.conn, statement)
		s.answers <- reply{p, answer, err}
	}()
}

// receive takes down one answer, if it comes in time. A connection that broke is kept in s.broken.
func (s *stage) receive(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case r := <-s.answers:
		s.run = append(s.run, Line{r.by.part.Name, r.by.asked, r.answer})
		r.by.busy = false
		s.broken = errors.Join(s.broken, r.err)
		return true
	case <-timer.C:
		return false
	}
}

// answerTo is the columns joined by blanks and the rows by commas, in PostgreSQL's own text; or the SQLSTATE.
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
