package dashboard_test

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/dashboard"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/pawltest"
)

// poolOf returns a pool that outlives the requests of a test.
func poolOf(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// If the reply to an action is lost, the page says that it may have been done, and links to the
// record. If the action was refused, it does not.
func TestAction_WhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	database := pawltest.URL(t)
	proxy, through := wireproxy.Start(t, database)
	b := setup(t, "", func(c *dashboard.Config) { c.Pool, c.Operators = poolOf(t, database), poolOf(t, through) })
	b.pool = poolOf(t, database)
	id := b.dead()
	b.exec("insert into pawl.schedule (name, every_ms, queue, kind, payload) values ('n', 1000000, 'q', 'k', '')")
	const lost = "The change may have been made"
	var once sync.Once
	proxy.Aim(func(sent []byte) bool { return bytes.Contains(sent, []byte("lose this reply")) })
	proxy.OnCommit(func() (fate wireproxy.Cut) {
		once.Do(func() { fate = wireproxy.BeforeReply })
		return fate
	})
	a := b.post("do/job_retry", retry("1", "lose this reply", "execute"))
	if a.status != http.StatusInternalServerError || !strings.Contains(a.body, lost) || !strings.Contains(a.body, "audit?actor=") || !strings.Contains(a.body, "job?id=1") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := one[string](b, "select j.status || ' ' || (select count(*) from pawl.audit) from pawl.job as j where j.id = $1", id); got != "pending 1" {
		t.Fatalf("the verb came to: %s", got)
	}
	if a := b.post("do/job_retry", retry("1", "again", "execute")); !strings.Contains(a.body, "Nothing was changed") {
		t.Errorf("pressed again: %d %s", a.status, a.body)
	}
	b.exec("alter table pawl.audit rename to away")
	if a := b.post("do/queue_pause", url.Values{"name": {"q"}, "reason": {"x"}, "mode": {"execute"}}); a.status != http.StatusInternalServerError || strings.Contains(a.body, lost) {
		t.Errorf("what the database refused: %d %s", a.status, a.body)
	}
}

// While no connection is free, pages say that instead of advising a narrower selection.
func TestPages_WithoutAConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	c := b.pool.Config()
	c.MaxConns = 1
	small, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(small.Close)
	of := setup(t, "", func(c *dashboard.Config) { c.Pool = small })
	held, err := small.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	if a := of.send(http.MethodGet, "jobs", nil); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "no connection to the database in time") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
