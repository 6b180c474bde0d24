package schematest_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func tryLock(namespace, key string) string {
	return "select l.outcome from pawl_v1.try_lock('" + namespace + "', '" + key + "') as l"
}

func accept(resource, fence string) string {
	return "select a.outcome from pawl_v1.fence_accept('" + resource + "', " + fence + ") as a"
}

// One transaction at a time holds a name until it ends, and no call waits for it.
func TestTryLock_OneAtATime(t *testing.T) {
	t.Parallel()
	duels(t, "", func(d *duel) {
		d.exactly(d.a.Do(tryLock("close", "m1 2024-05-01")), "locked")
		d.exactly(d.a.Do(tryLock("close", "m1 2024-05-01")), "locked") // the same transaction again
		d.exactly(d.b.Do(tryLock("close", "m1 2024-05-01")), "busy")
		d.exactly(d.b.Do(tryLock("close", "m2 2024-05-01")), "locked")
		d.exactly(d.b.Do(tryLock("open", "m1 2024-05-01")), "locked")
		d.a.Do("rollback")
		d.exactly(d.b.Do(tryLock("close", "m1 2024-05-01")), "locked")
	})
}

// The boundary between namespace and key is part of the name (trap T35).
func TestTryLock_PartsDoNotRunTogether(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	other := b.open("other")
	other.Do("begin")
	b.do("begin")
	b.is(tryLock("a", "bc"), "locked")
	b.same(other.Do(tryLock("ab", "c")), "locked")
	b.same(other.Do(tryLock("a", "bc")), "busy")
	b.is(tryLock("1:", "x"), "locked")
	b.same(other.Do(tryLock("1", ":x")), "locked")
	b.do("rollback")
	b.is(tryLock("", "k"), "P4000")
	b.is(tryLock(strings.Repeat("n", 256), "k"), "P4000")
	b.is(tryLock("n", ""), "P4001")
	b.is("select pawl_v1.try_lock('n', null)", "P4001")
}

// A fence lower than the highest seen is refused, the same one is accepted again, and resources are
// independent.
func TestFenceAccept(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	for _, step := range []struct{ resource, fence, want string }{
		{"r", "2", "accepted"}, {"r", "2", "accepted"}, {"r", "1", "P4020"}, {"r", "7", "accepted"}, {"r", "2", "P4020"},
		{"other", "1", "accepted"}, {"r", "7", "accepted"}, {"r", "0", "P4004"}, {"r", "-1", "P4004"}, {"r", "null", "P4004"},
		{"", "1", "P4000"},
	} {
		b.is(accept(step.resource, step.fence), step.want)
	}
	b.is("select f.resource, f.fence from pawl.fence as f order by f.resource", "other 1, r 7")
	if err := b.refusal(accept("r", "1")); err.Detail != "superseded" || err.Message != "resource r has seen fence 7, this attempt has 1" {
		t.Errorf("got %s, %s", err.Message, err.Detail)
	}
}

// Of two concurrent attempts, the second waits for the first one's end and is judged by it. One
// with an older snapshot may have to start over, but is never accepted wrongly.
func TestFenceAccept_AtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ seen, first, second, end, want string }{
		"new resource, newer first":      {"", "2", "1", "commit", "P4020"},
		"new resource, older first":      {"", "1", "2", "commit", "accepted"},
		"new resource, same":             {"", "1", "1", "commit", "accepted"},
		"new resource, newer undone":     {"", "2", "1", "rollback", "accepted"},
		"known resource, newer first":    {"1", "3", "2", "commit", "P4020"},
		"known resource, older first":    {"1", "2", "3", "commit", "accepted"},
		"known resource, newer undone":   {"1", "3", "2", "rollback", "accepted"},
		"known resource, older than all": {"2", "3", "1", "rollback", "P4020"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := ""
			if c.seen != "" {
				given = accept("r", c.seen)
			}
			duels(t, given, func(d *duel) {
				d.exactly(d.a.Do(accept("r", c.first)), "accepted")
				got := d.b.Do(accept("r", c.second))
				d.a.Do(c.end)
				if got == blocked {
					got = d.b.Wait()
				}
				d.want(got, c.want)
				d.b.Do("commit")
				highest := openSession(d.T, d.url, "after").Do("select max(f.fence) from pawl.fence as f")
				if c.want == "accepted" && got == "accepted" && highest < c.second {
					d.Errorf("the fence went back to %s", highest)
				}
			})
		})
	}
}

// A newer attempt commits after the older one's snapshot was taken. At every level the older one is
// refused or must start over.
func TestFenceAccept_OldSnapshot(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for _, seen := range []string{"", accept("r", "1")} {
			b := setup(t, seen)
			late := b.open("late")
			late.Do("begin isolation level " + string(level))
			late.Do("select count(*) from pawl.fence")
			b.is(accept("r", "5"), "accepted")
			if got := late.Do(accept("r", "4")); got != "P4020" && (got != lost || level == pgx.ReadCommitted) {
				t.Errorf("%s: %s", level, got)
			}
		}
	}
}
