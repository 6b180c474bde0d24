package ops_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// A dry run of each verb returns what it would do and changes nothing: on a pool, in an open
// transaction, and through database/sql. An open transaction stays usable.
func TestDryRun_ChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.blocked("l", 1)
	dead, pending := b.in(ops.StatusDeadLetter), b.in(ops.StatusPending)
	b.exec(`select pawl_v1.inbox_claim('c', 'm', sha256('x')), pawl_v1.sequence_gate_reset('c', 'r', 1, 'a', 'b'), pawl_v1.queue_set('q', '{"mode": "paused"}', 'a', 'b');
select pawl_v1.schedule_put('s', 'q', 'k', '', '{"every_ms": 3600000}');
select pawl_v1.command_claim('o', 'k', sha256(''))`)
	b.exec("select pawl_v1.command_fail('o', 'k', c.fence, c.hash, '{}', '{\"unknown\": true}') from pawl.command as c")
	b.exec(`insert into pawl.delivery (consumer, key, payload, hash, stored_as) values ('c', 'kept', 'x', sha256('x'), '{"queue": "q", "kind": "k"}');
insert into pawl.audit (actor, verb, target, reason, before, at) values ('a', 'inbox_forget', 'inbox c kept', 'r', '{}', clock_timestamp() + interval '1 minute')`)
	command, err := ops.CommandRef{Scope: "o", Key: "k"}.Get(t.Context(), b.pool)
	b.must(err)
	const state = `select md5(concat((select jsonb_agg(j order by j.id) from pawl.job as j), (select jsonb_agg(i) from pawl.inbox as i), (select jsonb_agg(g) from pawl.sequence_gate as g),
  (select jsonb_agg(q) from pawl.queue as q), (select jsonb_agg(s) from pawl.schedule as s), (select jsonb_agg(c) from pawl.command as c), (select jsonb_agg(l) from pawl.lane as l),
  (select count(*) from pawl.audit)))`
	before := one[string](b, state)
	db := stdlib.OpenDBFromPool(b.pool)
	defer func() { _ = db.Close() }()
	tx := b.begin()
	standard, err := db.BeginTx(t.Context(), nil)
	b.must(err)
	defer func() { _ = standard.Rollback() }()
	loose, err := db.BeginTx(t.Context(), nil) // a transaction that is passed as a plain handle
	b.must(err)
	defer func() { _ = loose.Rollback() }()
	for handle, db := range map[string]pawl.DB{"pool": b.pool, "transaction": tx, "database/sql": pawl.SQL(db), "its transaction": pawl.SQLTx(standard), "its plain transaction": pawl.SQL(loose)} {
		for name, verb := range map[string]func(context.Context, pawl.DB) (ops.Result, error){
			"retry": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.JobRef{ID: dead}.Retry(ctx, db, ops.DryRun)
			},
			"cancel": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.JobRef{ID: pending}.Cancel(ctx, db, ops.DryRun)
			},
			"discard": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.JobRef{ID: dead}.Discard(ctx, db, ops.DryRun)
			},
			"resume": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.QueueRef{Name: "q"}.Resume(ctx, db, ops.DryRun)
			},
			"archive": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.QueueRef{Name: "q"}.SetArchive(ctx, db, true, ops.DryRun)
			},
			"unblock": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.LaneRef{Queue: "q", Name: "l"}.Unblock(ctx, db, ops.DryRun)
			},
			"policy": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.LaneRef{Queue: "q", Name: "l"}.SetPolicy(ctx, db, "park", ops.DryRun)
			},
			"pause": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.ScheduleRef{Name: "s"}.Pause(ctx, db, ops.DryRun)
			},
			"run now": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.ScheduleRef{Name: "s"}.RunNow(ctx, db, ops.DryRun)
			},
			"delete": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.ScheduleRef{Name: "s"}.Delete(ctx, db, ops.DryRun)
			},
			"forget": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.DeliveryRef{Consumer: "c", Key: "m"}.Forget(ctx, db, ops.DryRun)
			},
			"replay": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.DeliveryRef{Consumer: "c", Key: "kept"}.Replay(ctx, db, ops.DryRun)
			},
			"reset": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return ops.SequenceGateRef{Consumer: "c", Resource: "r"}.Reset(ctx, db, 7, ops.DryRun)
			},
			"settle": func(ctx context.Context, db pawl.DB) (ops.Result, error) {
				return command.Ref().Settle(ctx, db, ops.CommandVerdict{Executed: true}, ops.DryRun)
			},
		} {
			if r, err := verb(t.Context(), db); err != nil || !r.Changed() || !r.DryRun {
				t.Errorf("%s on %s: %+v, %v", name, handle, r, err)
			}
		}
	}
	b.must(tx.Commit(t.Context()))
	b.must(standard.Commit())
	b.must(loose.Commit())
	if after := one[string](b, state); after != before {
		t.Error("something changed")
	}
}
