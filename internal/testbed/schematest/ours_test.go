package schematest_test

import (
	"fmt"
	"testing"
)

// A transaction that read another's row before it had an id still recognises its own rows, in any
// savepoint, while other transactions run.
func TestOurs_IsRecognisedAfterARead(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.inbox_claim('c', 'orphan', sha256('x'))`)
	ours := func(key string) string {
		return "select pawl_v1._is_ours(i.xmin) from pawl.inbox as i where i.key = '" + key + "'"
	}
	b.main.Do("begin")
	// A read by the caller fixes the reference point of age().
	b.is("select age(i.xmin) > 0 from pawl.inbox as i", "true")
	b.is(ours("orphan"), "false")
	other := b.open("other")
	for range 5 {
		other.Do("select pg_current_xact_id()")
	}
	other.Do("select pawl_v1.inbox_claim('c', 'theirs', sha256('x'))")
	b.main.Do("savepoint b")
	b.is("select c.outcome from pawl_v1.inbox_claim('c', 'm', sha256('x')) as c", "processed")
	b.main.Do("release savepoint b")
	b.is(ours("m"), "true")
	b.is(ours("theirs"), "false")
	b.is("select l.outcome from pawl_v1.inbox_store('c', 'm', 'q', 'k', 'x') as l", "stored")
	b.is("select pawl_v1.inbox_store('c', 'theirs', 'q', 'k', 'x')", "P4020")
}

// A row that was frozen more than four billion transactions ago may have an id ahead of all current
// ids. It is not the transaction's own.
func TestOurs_AWrappedIDIsAnothers(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		b := setup(t, "")
		b.main.Do("begin isolation level " + level)
		b.is("select pawl_v1._is_ours(pg_current_xact_id()::xid)", "true")
		for _, ahead := range []int{1 << 10, 1 << 20, 1 << 24, 1<<31 - 1, 1 << 31} {
			b.is(fmt.Sprintf("select pawl_v1._is_ours(((pg_current_xact_id()::text::bigint + %d) & 4294967295)::text::xid)", ahead), "false")
		}
		b.main.Do("rollback")
	}
}

// An expiry lies after the creation. A memory that has expired from the start would accept a
// duplicate.
func TestTables_ExpiryLiesAfterCreation(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', 'x', '{"key": "a"}'), pawl_v1.command_claim('s', 'k', sha256('x')),
       pawl_v1.step_begin('s', 'k', 'e', sha256('x'), '{"recovery": "keyed", "provider_key": "p"}')`)
	for _, table := range []string{"job_key", "command", "step"} {
		b.is("update pawl."+table+" set expires_at = created_at", "23514")
	}
}
