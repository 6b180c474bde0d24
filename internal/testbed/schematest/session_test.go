package schematest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// A session is one connection that takes steps. A step returns when its statement has ended, or
// when it waits for a session that cannot go on by itself. Nothing depends on speed.
type session struct {
	tb       testing.TB
	name     string
	conn     *pgx.Conn
	observer *pgx.Conn
	pending  chan string // the answer of a blocked step
}

func openSession(tb testing.TB, url, name string) *session {
	tb.Helper()
	return &session{tb: tb, name: name, conn: connect(tb, url), observer: connect(tb, url)}
}

// blocked is the answer of a step that waits for a session that is idle in its transaction or is
// itself blocked.
const blocked = "blocked"

// allBlocked asks whether each of the sessions is blocked. A session that waits for a running
// statement does not count, because that wait ends by itself. Such waits are common. For example,
// commits after a notification take one lock per server.
const allBlocked = `select bool_and(cardinality(w.pids) > 0 and not exists (
         select from pg_stat_activity as a
          where a.pid = any (w.pids)
            and a.state = 'active'
            and cardinality(pg_blocking_pids(a.pid)) = 0))
  from unnest($1::int[]) as s (pid), lateral (select pg_blocking_pids(s.pid) as pids) as w`

// looks is how many consecutive answers must say that sessions are blocked. One is not enough,
// because it does not see all sessions at one instant. The blocking session may end its statement
// and its lock in between.
const looks = 2

// Do takes a step. It returns the rows, columns joined by blanks and rows by commas, or [blocked],
// or the SQLSTATE of the error.
func (s *session) Do(statement string) string {
	s.tb.Helper()
	if s.pending != nil {
		s.tb.Fatalf("%s: %s: the previous step is blocked", s.name, statement)
	}
	answer := make(chan string, 1)
	pid := s.conn.PgConn().PID()
	go func() { answer <- s.run(statement) }()
	answered, got, seen := false, blocked, 0
	patience.Until(s.tb, s.name+" has its answer or is blocked: "+statement, func() bool {
		for range 20 { // most answers come within a few of these questions
			select {
			case got = <-answer:
				answered = true
				return true
			default:
			}
			var waits bool
			if err := s.observer.QueryRow(s.tb.Context(), allBlocked, []uint32{pid}).Scan(&waits); err != nil {
				s.tb.Fatal(err)
			}
			if seen++; !waits {
				seen = 0
			}
			if seen == looks {
				return true
			}
		}
		return false
	})
	if !answered {
		s.pending = answer
	}
	s.tb.Logf("%s: %s: %s", s.name, statement, got)
	return got
}

// Wait returns the answer of the blocked step.
func (s *session) Wait() string {
	s.tb.Helper()
	if s.pending == nil {
		s.tb.Fatalf("%s: nothing is blocked", s.name)
	}
	answer := patience.Receive(s.tb, s.name+" is free", s.pending)
	s.pending = nil
	s.tb.Logf("%s: after the wait: %s", s.name, answer)
	return answer
}

func (s *session) run(statement string) string {
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
