package ops_test

import (
	"errors"
	"github.com/pawl-go/pawl/doctor"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/pgtest/hostile"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schema"
)

// If other roles may create objects in a schema of the operator's search_path, reads and verbs call
// none of these objects. That holds through a pool, in a transaction and through database/sql. The
// path is unchanged afterwards.
func TestVerbs_CallNothingOfOthers(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t, schema.Roles())
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
		for handle, db := range map[string]func(*testing.T) pawl.DB{
			"pool":         func(*testing.T) pawl.DB { return pool },
			"database/sql": func(*testing.T) pawl.DB { return pawl.SQL(stdlib.OpenDBFromPool(pool)) },
			"transaction": func(t *testing.T) pawl.DB {
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

// look calls the reads of the CLI and of the gauges.
func look(t *testing.T, db pawl.DB) {
	t.Helper()
	ctx := t.Context()
	try := func(what string, err error) {
		t.Helper()
		if err != nil && !errors.Is(err, pawl.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	by := ops.By{Actor: "a", Reason: "why"}
	_, err := doctor.Diagnose(ctx, db, doctor.Limits{Skip: []string{"pooler"}})
	try("Diagnose", err)
	_, err = ops.Look(ctx, db)
	try("Look", err)
	_, err = ops.Jobs{Queue: "q", Kind: "k", Statuses: []ops.Status{"pending"}, Error: "e", OlderThan: time.Hour, NoDoubles: true}.List(ctx, db)
	try("List", err)
	_, err = ops.JobRef{ID: 1}.Get(ctx, db)
	try("Show", err)
	_, err = ops.Jobs{}.Count(ctx, db)
	try("Count", err)
	_, err = ops.Commands{Scope: "s", Stale: true}.List(ctx, db)
	try("Commands", err)
	_, err = ops.CommandRef{Scope: "s", Key: "k"}.Get(ctx, db)
	try("ShowCommand", err)
	_, err = ops.Steps{}.List(ctx, db)
	try("Steps", err)
	_, err = ops.StepRef{Scope: "s", Key: "k", Step: "e"}.Get(ctx, db)
	try("ShowStep", err)
	_, err = ops.Explain(ctx, db, "k", "")
	try("Explain", err)
	_, err = ops.SequenceGates{}.List(ctx, db)
	try("Gates", err)
	_, err = ops.SequenceGateRef{Consumer: "c", Resource: "r"}.Get(ctx, db)
	try("SequenceGate", err)
	_, err = ops.QueueRef{Name: "q"}.Get(ctx, db)
	try("Queue", err)
	_, err = ops.LaneRef{Queue: "q", Name: "l"}.Get(ctx, db)
	try("Lane", err)
	_, err = ops.ScheduleRef{Name: "s"}.Get(ctx, db)
	try("Schedule", err)
	_, err = ops.JobRef{ID: 1}.Changes(ctx, db)
	try("Changes", err)
	_, err = ops.DeliveryRef{Consumer: "c", Key: "m"}.Get(ctx, db)
	try("ShowInbox", err)
	_, err = ops.Lanes{Queue: "q"}.List(ctx, db)
	try("Lanes", err)
	_, err = ops.Outbox{Sink: "s"}.List(ctx, db)
	try("OutboxEvents", err)
	_, err = ops.Outbox{Heads: true}.List(ctx, db)
	try("OutboxHeads", err)
	_, err = ops.Outbox{Sink: "s"}.Lag(ctx, db)
	try("OutboxLags", err)
	_, err = ops.Purge(ctx, db, ops.PurgeRule{Table: "job_key"}, ops.DryRun, nil)
	try("Purgeable", err)
	_, err = ops.Queues{}.List(ctx, db)
	try("Queues", err)
	_, err = ops.JobRef{ID: 1}.Archived(ctx, db)
	try("Archived", err)
	_, err = ops.DeliveryRef{Consumer: "c", Key: "m"}.Replay(ctx, db, ops.DryRun)
	try("ReplayInbox", err)
	_, err = ops.Deliveries{Consumer: "c", From: time.Now().Add(-time.Hour), After: "2026-11-21T12:00:00Z/m"}.List(ctx, db)
	try("Deliveries", err)
	_, err = ops.Schedules{}.List(ctx, db)
	try("Schedules", err)
	_, err = ops.Stales(ctx, db, "", nil)
	try("Stales", err)
	_, err = ops.Jobs{}.RetryAll(ctx, db, by, nil)
	try("RetryAll", err)
	_, err = ops.JobRef{ID: 1}.Cancel(ctx, db, by)
	try("Cancel", err)
}
