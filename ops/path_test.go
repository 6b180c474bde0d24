package ops_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pgtest/hostile"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/sql"
)

// Where others may create objects in a schema of the operator's search_path, what looks and what changes rows calls none of them:
// whether it is sent through a pool, in a transaction or through database/sql, and the path is as it was afterwards.
func TestVerbs_CallNothingOfOthers(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t, sql.Roles())
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	plant(t, pool)
	for name, path := range hostile.Paths {
		t.Run(name+"/without rows", func(t *testing.T) {
			if _, err := pool.Exec(t.Context(), "set search_path = "+path+"; set role pawl_operator"); err != nil {
				t.Fatal(err)
			}
			look(t, pool)
			if _, err := pool.Exec(t.Context(), "reset role"); err != nil {
				t.Fatal(err)
			}
		})
		for handle, db := range map[string]func(*testing.T) ops.DB{
			"pool":         func(*testing.T) ops.DB { return pool },
			"database/sql": func(*testing.T) ops.DB { return pawl.SQL(stdlib.OpenDBFromPool(pool)) },
			"transaction": func(t *testing.T) ops.DB {
				tx, err := pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
				return tx
			},
		} {
			t.Run(name+"/"+handle, func(t *testing.T) {
				if _, err := pool.Exec(t.Context(), "set search_path = "+path); err != nil {
					t.Fatal(err)
				}
				db := db(t)
				look(t, db)
				var now string
				if err := db.QueryRow(t.Context(), "show search_path").Scan(&now); err != nil || now != path {
					t.Errorf("the path is %q afterwards (%v), want %q", now, err, path)
				}
			})
		}
	}
}

func plant(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := hostile.Plant(t.Context(), conn.Conn()); err != nil {
		t.Fatal(err)
	}
	if err := hostile.Overload(t.Context(), conn.Conn()); err != nil {
		t.Fatal(err)
	}
	if err := hostile.Deny(t.Context(), conn.Conn()); err != nil {
		t.Fatal(err)
	}
}

// look calls what the operator's tool and the gauges call.
func look(t *testing.T, db ops.DB) {
	t.Helper()
	ctx := t.Context()
	try := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	by := ops.By{Actor: "a", Reason: "why"}
	_, err := ops.Diagnose(ctx, db, ops.Limits{Skip: []string{"pooler"}})
	try("Diagnose", err)
	_, err = ops.Look(ctx, db)
	try("Look", err)
	_, err = ops.List(ctx, db, ops.Filter{Queue: "q", Kind: "k", Statuses: []ops.Status{"pending"}, Error: "e", OlderThan: time.Hour, NoDoubles: true})
	try("List", err)
	_, _, err = ops.Show(ctx, db, 1)
	try("Show", err)
	_, err = ops.Count(ctx, db, ops.Filter{})
	try("Count", err)
	_, err = ops.Commands(ctx, db, ops.CommandFilter{Scope: "s", Stale: true})
	try("Commands", err)
	_, _, _, err = ops.ShowCommand(ctx, db, ops.CommandID{Scope: "s", Key: "k"})
	try("ShowCommand", err)
	_, err = ops.Effects(ctx, db, ops.EffectFilter{})
	try("Effects", err)
	_, _, err = ops.ShowEffect(ctx, db, ops.EffectID{Scope: "s", Key: "k", Step: "e"})
	try("ShowEffect", err)
	_, err = ops.Explain(ctx, db, "k", "")
	try("Explain", err)
	_, err = ops.Gates(ctx, db, ops.GateFilter{})
	try("Gates", err)
	_, err = ops.JobCounts(ctx, db)
	try("JobCounts", err)
	_, err = ops.QueuesDue(ctx, db)
	try("QueuesDue", err)
	_, err = ops.QueuesServed(ctx, db, "outbox/")
	try("QueuesServed", err)
	_, err = ops.DeadCounts(ctx, db)
	try("DeadCounts", err)
	_, err = ops.CountWorkers(ctx, db)
	try("CountWorkers", err)
	_, err = ops.CountStaleCommands(ctx, db)
	try("CountStaleCommands", err)
	_, _, err = ops.ShowInbox(ctx, db, "c", "m")
	try("ShowInbox", err)
	_, err = ops.Lanes(ctx, db, ops.LaneFilter{Queue: "q"})
	try("Lanes", err)
	_, err = ops.OutboxEvents(ctx, db, ops.OutboxFilter{Sink: "s"})
	try("OutboxEvents", err)
	_, err = ops.OutboxHeads(ctx, db, ops.OutboxFilter{})
	try("OutboxHeads", err)
	_, err = ops.OutboxLags(ctx, db, "s")
	try("OutboxLags", err)
	_, err = ops.Purgeable(ctx, db, ops.PurgeRule{Table: "job_key"})
	try("Purgeable", err)
	_, err = ops.Queues(ctx, db, ops.QueueFilter{})
	try("Queues", err)
	_, _, err = ops.Archived(ctx, db, 1)
	try("Archived", err)
	_, err = ops.ReplayInbox(ctx, db, "c", "m", true, by)
	try("ReplayInbox", err)
	for _, err := range ops.KeptInbox(ctx, db, "c", time.Now().Add(-time.Hour), time.Now()) {
		try("KeptInbox", err)
	}
	_, err = ops.Schedules(ctx, db, ops.ScheduleFilter{})
	try("Schedules", err)
	_, err = ops.Stales(ctx, db, "", nil)
	try("Stales", err)
	_, err = ops.RetryAll(ctx, db, ops.Filter{}, by, nil)
	try("RetryAll", err)
	_, err = ops.Cancel(ctx, db, 1, by)
	try("Cancel", err)
}
