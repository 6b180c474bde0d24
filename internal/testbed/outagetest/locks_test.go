package outagetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/lock"
)

// Each command in a transaction holds a lock, so thousands of commands fill the server's lock
// table. That transaction fails, and so do others until it has ended. The error says what to do, in
// Go and in SQL. Afterwards everything works, and nothing of the commands is left.
func TestLockTable_ManyCommandsInOneTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, map[string]string{"max_locks_per_transaction": "10", "max_connections": "30", "autovacuum": "off"}, "")
	pool := b.pool(4, nil)
	tx, err := pool.Begin(t.Context())
	b.must(err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	// The other locks that TryLock needs are held from here on.
	_, err = lock.TryLock(t.Context(), tx, "many", "first")
	b.must(err)
	opened, err := 0, error(nil)
	for ; err == nil && opened < 20_000; opened++ {
		_, err = tx.Exec(t.Context(), "savepoint s")
		b.must(err)
		_, err = tx.Exec(t.Context(), "select pawl_v1.command_open('many', $1, sha256('x'))", fmt.Sprint(opened))
	}
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "53200" || refused.Message != "out of shared memory" || !strings.Contains(refused.Hint, "max_locks_per_transaction") {
		t.Fatalf("after %d commands: %v", opened, err)
	}
	t.Logf("%d commands fill the lock table", opened)
	if opened < 100 {
		t.Errorf("%d commands fill the lock table", opened)
	}
	// Take the locks that the last command released, one by one.
	_, err = tx.Exec(t.Context(), "rollback to savepoint s")
	b.must(err)
	filled, err := 0, error(nil)
	for ; err == nil && filled < 20_000; filled++ {
		_, err = tx.Exec(t.Context(), "savepoint s")
		b.must(err)
		_, err = lock.TryLock(t.Context(), tx, "many", fmt.Sprint(filled))
	}
	wantLocksHint(t, err)
	_, err = tx.Exec(t.Context(), "rollback to savepoint s")
	b.must(err)

	once := func() error {
		_, err := command.Once(t.Context(), pool, intent("once"), command.Options{},
			func(context.Context, pgx.Tx) (int, error) { return 1, nil })
		return err
	}
	wantLocksHint(t, once())
	b.must(tx.Rollback(t.Context()))
	b.must(once())
	if n := b.count("select count(*) from pawl.command where scope = 'many'"); n != 0 {
		t.Errorf("%d commands are left of a transaction that was rolled back", n)
	}
}

func wantLocksHint(t *testing.T, err error) {
	t.Helper()
	const hint = "raise max_locks_per_transaction (needs a server restart), or do less in one transaction"
	if pawl.CodeOf(err) != "53200" || !strings.Contains(err.Error(), hint) {
		t.Errorf("got the error %v, want 53200 with the hint %q", err, hint)
	}
}
