package schematest_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/pgtest"
)

// counters is a template with two rows in which sessions count.
var counters = pgtest.Template{Name: "counters_1", Apply: func(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "create table counter (id int primary key, n int not null); insert into counter values (1, 0), (2, 0)")
	return err
}}

// A step that waits for a running statement is not blocked. It has its answer when that statement
// ends.
func TestSession_ARunningStatementBlocksNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t, counters)
	holder, watch := connect(t, url), openSession(t, url, "watch")
	pid := fmt.Sprint(holder.PgConn().PID())
	ended := make(chan error, 1)
	go func() {
		_, err := holder.Exec(t.Context(), "select pg_advisory_xact_lock(1), pg_sleep(3600)")
		ended <- err
	}()
	locks := func(granted string) string {
		return "select count(*) from pg_locks as l where l.locktype = 'advisory' and l.granted = " + granted +
			" and l.database = (select d.oid from pg_database as d where d.datname = current_database())"
	}
	for watch.Do(locks("true")) == "0" {
		runtime.Gosched()
	}
	var watching sync.WaitGroup
	watching.Go(func() { // cancels the holder once the step has waited for a while
		for waits := 0; waits < 20; {
			if watch.Do(locks("false")) == "1" {
				waits++
			}
		}
		watch.Do("select pg_cancel_backend(" + pid + ")")
	})
	if got := openSession(t, url, "s").Do("select pg_advisory_xact_lock(1)"); got != "" {
		t.Errorf("got %q", got)
	}
	watching.Wait()
	if err := <-ended; err == nil {
		t.Error("the holder was not cancelled")
	}
}

// A step that waits for an idle transaction is blocked until that ends. So is a step that waits for
// a blocked one.
func TestSession_BlockedUntilFree(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t, counters)
	a, b, c := openSession(t, url, "a"), openSession(t, url, "b"), openSession(t, url, "c")
	a.Do("begin; update counter set n = n + 1 where id = 1")
	b.Do("begin; update counter set n = n + 1 where id = 2")
	if got := b.Do("update counter set n = n + 1 where id = 1 returning n"); got != blocked {
		t.Fatalf("b: %s", got)
	}
	if got := c.Do("update counter set n = n + 1 where id = 2 returning n"); got != blocked {
		t.Fatalf("c, behind b: %s", got)
	}
	a.Do("commit")
	if got := b.Wait(); got != "2" {
		t.Errorf("b: %s", got)
	}
	b.Do("commit")
	if got := c.Wait(); got != "2" {
		t.Errorf("c: %s", got)
	}
}
