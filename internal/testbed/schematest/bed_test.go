package schematest_test

import (
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// A bed is a new database and a session in it that uses the contract as psql does.
type bed struct {
	*testing.T
	url  string
	main *session
}

// setup returns a bed on which given has run.
func setup(t *testing.T, given string) *bed {
	t.Helper()
	b := &bed{T: t, url: pawltest.URL(t)}
	if given != "" {
		exec1(t, b.url, given)
	}
	b.main = b.open("main")
	return b
}

// patient raises the lock timeout of the functions that wait for up to 2 s. On a machine that
// stands still they would return 55P03 in tests that mean the end of the other transaction.
const patient = `do $$ declare f regprocedure; begin
  for f in select p.oid from pg_proc as p where 'lock_timeout=2s' = any (p.proconfig) loop
    execute format('alter function %s set lock_timeout = ''10min''', f);
  end loop;
end $$;`

func (b *bed) open(name string) *session {
	b.Helper()
	return openSession(b.T, b.url, name)
}

// is requires the result of a statement: its columns joined by blanks and its rows by commas, or
// its SQLSTATE.
func (b *bed) is(statement, want string) {
	b.Helper()
	b.same(b.main.Do(statement), want)
}

func (b *bed) same(got, want string) {
	b.Helper()
	if got != want {
		b.Errorf("got %s, want %s", got, want)
	}
}

// do runs a statement that must neither fail nor wait, and ignores its result.
func (b *bed) do(statement string) {
	b.Helper()
	if got := b.main.Do(statement); regexp.MustCompile(`^[0-9A-Z]{5}$`).MatchString(got) || got == blocked {
		b.Fatalf("%s: %s", statement, got)
	}
}

// refusal returns the error of a statement that must fail.
func (b *bed) refusal(statement string) *pgconn.PgError {
	b.Helper()
	_, err := connect(b.T, b.url).Exec(b.Context(), statement)
	var pg *pgconn.PgError
	if !asPgError(err, &pg) {
		b.Fatalf("%s: %v, want an error of the server", statement, err)
	}
	return pg
}

// until repeats a query until it returns the wanted result.
func (b *bed) until(s *session, question, want string) {
	b.Helper()
	patience.Until(b, want+" by "+question, func() bool { return s.Do(question) == want })
}

// jobs is the query that most tests check afterwards.
const jobs = "select j.id, j.status, j.claimed_by, j.fence, j.attempts, j.crashes from pawl.job as j order by j.id"

var levels = []string{"read committed", "repeatable read", "serializable"}

// oneIsDead makes the first worker miss its heartbeats.
const oneIsDead = "update pawl.worker set seen_at = now() - interval '1 hour' where id = 1;"
