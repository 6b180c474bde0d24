// Package stepper runs exact interleavings of database sessions. A step returns when its statement has ended, or when
// the server itself says that it waits for another session; nothing depends on how fast anything is. For tests only.
package stepper

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// limit bounds each wait.
const limit = 20 * time.Second

// A Session is one connection that takes steps.
type Session struct {
	tb       testing.TB
	name     string
	conn     *pgx.Conn
	observer *pgx.Conn
	pending  chan string // the answer of a step that was blocked
}

// Open connects a named session.
func Open(tb testing.TB, url, name string) *Session {
	tb.Helper()
	return &Session{tb: tb, name: name, conn: connect(tb, url), observer: connect(tb, url)}
}

func connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Blocked is the answer of a step that waits for another session.
const Blocked = "blocked"

// Do takes a step. It answers what the statement returned, the columns joined by blanks and the rows by commas; or
// [Blocked]; or the SQLSTATE of its error.
func (s *Session) Do(statement string) string {
	s.tb.Helper()
	if s.pending != nil {
		s.tb.Fatalf("%s: %s: the step before is blocked", s.name, statement)
	}
	answer := make(chan string, 1)
	pid := s.conn.PgConn().PID()
	go func() { answer <- s.run(statement) }()
	for deadline := time.Now().Add(limit); ; {
		select {
		case a := <-answer:
			s.tb.Logf("%s: %s: %s", s.name, statement, a)
			return a
		case <-time.After(time.Millisecond):
		}
		var blocked bool
		if err := s.observer.QueryRow(s.tb.Context(), "select cardinality(pg_blocking_pids($1)) > 0", pid).Scan(&blocked); err != nil {
			s.tb.Fatal(err)
		}
		if blocked {
			s.pending = answer
			s.tb.Logf("%s: %s: %s", s.name, statement, Blocked)
			return Blocked
		}
		if time.Now().After(deadline) {
			s.tb.Fatalf("%s: %s: neither done nor blocked", s.name, statement)
		}
	}
}

// Wait returns the answer of the step that was blocked.
func (s *Session) Wait() string {
	s.tb.Helper()
	if s.pending == nil {
		s.tb.Fatalf("%s: nothing is blocked", s.name)
	}
	select {
	case a := <-s.pending:
		s.pending = nil
		s.tb.Logf("%s: after the wait: %s", s.name, a)
		return a
	case <-time.After(limit):
		s.tb.Fatalf("%s: still blocked", s.name)
		return ""
	}
}

func (s *Session) run(statement string) string {
	rows, err := s.conn.Query(context.Background(), statement, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return answerOf(err)
	}
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		line := make([]string, len(values))
		for i, v := range values {
			line[i] = fmt.Sprint(v)
		}
		return strings.Join(line, " "), err
	})
	if err != nil {
		return answerOf(err)
	}
	return strings.Join(lines, ", ")
}

func answerOf(err error) string {
	if code := pawl.CodeOf(err); code != "" {
		return string(code)
	}
	return err.Error()
}
