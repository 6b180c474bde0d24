package outagetest

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schedule"
	"github.com/pawl-go/pawl/step"
)

// A part uses a pool whose connections become read-only. begin runs before that. Its result is
// called repeatedly afterwards until it reports that the part works.
type part struct {
	name  string
	begin func(d *demoted, pool *pgxpool.Pool) (works func() bool)
}

// calls is a part that works once a call succeeds.
func calls(call func(d *demoted, pool *pgxpool.Pool) func(ctx context.Context) error) func(*demoted, *pgxpool.Pool) func() bool {
	return func(d *demoted, pool *pgxpool.Pool) func() bool {
		do := call(d, pool)
		return func() bool { return do(d.Context()) == nil }
	}
}

// loops is a part that runs by itself. work gives it work, and rows counts what it does.
func loops(start func(d *demoted, pool *pgxpool.Pool), work, rows string) func(*demoted, *pgxpool.Pool) func() bool {
	return func(d *demoted, pool *pgxpool.Pool) func() bool {
		start(d, pool)
		if work != "" {
			d.exec(work)
		}
		patience.Until(d, "it works before", func() bool { return d.count(rows) > 0 })
		var before int
		return func() bool {
			if before == 0 {
				before = d.count(rows) // before the new work, which may be done at once
				if work != "" {
					d.exec(work)
				}
				return false
			}
			return d.count(rows) > before
		}
	}
}

func intent(name string) pawl.Intent {
	return pawl.Intent{Scope: "outage", Key: name, Fingerprint: pawl.FingerprintOf([]byte(name))}
}

type owner string

func (o owner) Owner() pawl.Owner                   { return contract.OwnerOf("job", "outage", string(o), 0) }
func (o owner) Hold(context.Context, pawl.Tx) error { return nil }

// quiet are hooks that log nothing.
var quiet = pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}

var by = ops.By{Actor: "ann", Reason: "a test"}

const things = `create table thing (id bigint primary key, status text not null default 'pending', result text, claimed_at timestamptz,
  completed_at timestamptz, last_error text, attempt_count int not null default 0, created_at timestamptz not null default now());
insert into thing (id, status, attempt_count) values (1, 'pending', 0), (2, 'pending', 0), (3, 'error', 1), (4, 'error', 1);
create function again() returns void language sql as $$ update thing set status = 'error', attempt_count = 1, claimed_at = null where id = 4 $$`

func (d *demoted) rows(pool *pgxpool.Pool) *guard.Rows {
	rows, err := guard.New(pool, guard.Table{Name: "thing"})
	d.must(err)
	return rows
}

// sweeps runs a sweeper of the rows.
func (d *demoted) sweeps(rows *guard.Rows, every time.Duration) {
	s, err := rows.Sweeper(guard.SweeperConfig{Every: every, Wait: time.Millisecond, MaxWait: time.Millisecond}, func(ctx context.Context, id string) error {
		return rows.Once(ctx, id, func(ctx context.Context, tx pgx.Tx) (any, error) { return nil, apply(ctx, tx, "swept "+id) })
	})
	d.must(err)
	d.goes(s.Run)
}

func (d *demoted) handle(pool *pgxpool.Pool) *sql.DB {
	db := stdlib.OpenDBFromPool(pool)
	d.Cleanup(func() { _ = db.Close() })
	return db
}

var parts = []part{
	{"enqueue", calls(func(d *demoted, pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := job.Enqueue(ctx, pool, job.Request{Queue: "unserved", Kind: "k", Payload: []byte("x")})
			return err
		}
	})},
	{"enqueue, database/sql over the pool", calls(func(d *demoted, pool *pgxpool.Pool) func(context.Context) error {
		db := d.handle(pool)
		return func(ctx context.Context) error {
			_, err := job.Enqueue(ctx, pawl.SQL(db), job.Request{Queue: "unserved", Kind: "k", Payload: []byte("x")})
			return err
		}
	})},
	{"enqueue, database/sql", calls(func(d *demoted, pool *pgxpool.Pool) func(context.Context) error {
		config := pool.Config().ConnConfig
		db := stdlib.OpenDB(*config)
		d.Cleanup(func() { _ = db.Close() })
		db.SetMaxIdleConns(4)
		for range 4 { // idle connections
			conn, err := db.Conn(d.Context())
			d.must(err)
			d.must(conn.PingContext(d.Context()))
			defer conn.Close()
		}
		return func(ctx context.Context) error {
			_, err := job.Enqueue(ctx, pawl.SQL(db), job.Request{Queue: "unserved", Kind: "k", Payload: []byte("x")})
			return err
		}
	})},
	{"command.Once", calls(func(d *demoted, pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := command.Once(ctx, pool, intent("once"), command.Options{}, func(ctx context.Context, tx pgx.Tx) (int, error) { return 1, apply(ctx, tx, "once") })
			return err
		}
	})},
	{"command.OnceSQL", calls(func(d *demoted, pool *pgxpool.Pool) func(context.Context) error {
		db := d.handle(pool)
		return func(ctx context.Context) error {
			_, err := command.OnceSQL(ctx, db, intent("once sql"), command.Options{}, func(ctx context.Context, tx *sql.Tx) (int, error) { return 1, nil })
			return err
		}
	})},
	{"command.Leased", calls(func(d *demoted, pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := command.Leased(ctx, pool, intent("leased"), command.LeaseOptions{Repeatable: true}, func(ctx context.Context, a *command.Attempt[int]) error { return a.Succeed(ctx, 1) })
			return err
		}
	})},
	{"command's heartbeat", func(d *demoted, pool *pgxpool.Pool) func() bool {
		a, _, err := command.Begin[int](d.Context(), pool, intent("held"), command.LeaseOptions{Lease: 12 * time.Second, Repeatable: true})
		d.must(err)
		d.Cleanup(a.Close)
		before := 0
		return func() bool {
			until := d.count("select (extract(epoch from c.lease_expires_at) * 10)::bigint from pawl.command as c where c.key = 'held'")
			if before == 0 {
				before = until
			}
			return until > before
		}
	}},
	{"guard.Once", calls(func(d *demoted, pool *pgxpool.Pool) func(context.Context) error {
		rows := d.rows(pool)
		return func(ctx context.Context) error {
			return rows.Once(ctx, 1, func(ctx context.Context, tx pgx.Tx) (any, error) { return nil, apply(ctx, tx, "guard") })
		}
	})},
	{"guard.Claim and Commit", calls(func(d *demoted, pool *pgxpool.Pool) func(context.Context) error {
		rows := d.rows(pool)
		d.sweeps(rows, time.Hour)
		// Claimed before, so that only Commit must find the primary.
		var claimed *guard.Claimed
		patience.Until(d, "the row is claimed", func() (ok bool) {
			var err error
			claimed, err = rows.Claim(d.Context(), 2)
			return err == nil
		})
		return func(ctx context.Context) error {
			return claimed.Commit(ctx, func(ctx context.Context, tx pgx.Tx) (any, error) { return nil, apply(ctx, tx, "claimed") })
		}
	})},
	{"guard's sweeper", loops(func(d *demoted, pool *pgxpool.Pool) {
		d.sweeps(d.rows(pool), 50*time.Millisecond)
	}, "select again()", "select count(*) from effect where key = 'swept 4'")},
	{"ops", calls(func(d *demoted, pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := ops.QueueRef{Name: "paused"}.Pause(ctx, pool, by)
			return err
		}
	})},
	{"schedule.Put", calls(func(d *demoted, pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := schedule.Put(ctx, pool, schedule.Schedule{Name: "put", Plan: schedule.Every(time.Hour), Queue: "unserved", Kind: "k"})
			return err
		}
	})},
	{"step.Run", calls(func(d *demoted, pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := step.Run(ctx, pool, owner("step"), step.Step{Name: "s", Recovery: step.Repeatable()}, func(context.Context, step.Call) (int, error) { return 1, nil })
			return err
		}
	})},
	{"a schedule's keeper", loops(func(d *demoted, pool *pgxpool.Pool) {
		k, err := schedule.NewKeeper(pool, schedule.Config{Hooks: quiet, Schedules: []schedule.Schedule{{Name: "s", Plan: schedule.Every(100 * time.Millisecond), Queue: "ticks", Kind: "k"}}})
		d.must(err)
		d.goes(k.Run)
	}, "", "select count(*) from pawl.job as j where j.queue = 'ticks'")},
	{"a worker", loops(func(d *demoted, pool *pgxpool.Pool) {
		d.worker(pool, quiet, job.Queue{Name: "q"}, job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, _ job.Task[[]byte]) error { return apply(ctx, tx, "tx") }))
	}, "select pawl_v1.job_enqueue('q', 'k', '')", "select count(*) from effect where key = 'tx'")},
	{"a worker's simple handlers", loops(func(d *demoted, pool *pgxpool.Pool) {
		d.worker(pool, quiet, job.Queue{Name: "simple"}, job.Handle("k", func(ctx context.Context, _ job.Task[[]byte]) error {
			_, err := pool.Exec(ctx, "set default_transaction_read_only = off; insert into effect values ('simple')")
			return err
		}))
	}, "select pawl_v1.job_enqueue('simple', 'k', '')", "select count(*) from effect where key = 'simple'")},
	{"the heartbeat and the sweep", func(d *demoted, pool *pgxpool.Pool) func() bool {
		// There is nothing to claim. The heartbeats and the sweep on the presence connection must
		// recover by themselves.
		d.worker(pool, quiet, job.Queue{Name: "idle"}, job.Handle("k", func(context.Context, job.Task[[]byte]) error { return nil }))
		d.exec("select pawl_v1.worker_register('dead', '1 hour')")
		d.exec("select pawl_v1.job_enqueue('orphans', 'orphan', '')")
		begun := false
		return func() bool {
			if !begun { // a worker died long ago with a job
				d.exec(`with dead as (update pawl.worker set seen_at = clock_timestamp() - interval '1 day' where name = 'dead' returning id)
update pawl.job as j set status = 'processing', claimed_by = d.id, attempts = 1, fence = 1 from dead as d where j.queue = 'orphans'`)
				begun = true
			}
			return d.count("select count(*) from pawl.job as j where j.queue = 'orphans' and j.status = 'pending'") == 1
		}
	}},
	{"a relay", loops(func(d *demoted, pool *pgxpool.Pool) {
		r, err := outbox.NewRelay(pool, outbox.Config{SinkName: "s", Sink: outbox.Func(func(ctx context.Context, m pawl.Message) error {
			_, err := pool.Exec(ctx, "set default_transaction_read_only = off; insert into effect values ('published')")
			return err
		})})
		d.must(err)
		d.goes(r.Run)
	}, `select pawl_v1.outbox_append('s', 'T', null, null, '')`, "select count(*) from effect where key = 'published'")},
	{"a consumer", func(d *demoted, pool *pgxpool.Pool) func() bool {
		var n, acked atomic.Int32
		s := &pawltest.Source{}
		c, err := consumer.New(pool, consumer.Config{Name: "c", Source: s, Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
			return apply(ctx, tx, "consumed")
		})})
		d.must(err)
		d.goes(c.Run)
		send := func() { s.Send(pawl.Delivery{Key: fmt.Sprint(n.Add(1)), Payload: []byte("x")}) }
		send()
		patience.Until(d, "it works before", func() bool { return s.Open() == 0 })
		return func() bool {
			if acked.CompareAndSwap(0, 1) {
				send()
			}
			return s.Open() == 0
		}
	}},
}

// After a failover that keeps connections, every part finds the primary by itself, because
// connections that refuse writes are replaced.
func TestParts_LeaveAStandby(t *testing.T) {
	t.Parallel()
	d := &demoted{bed: setup(t, nil, things)}
	works := map[string]func() bool{}
	for _, p := range parts {
		pool := d.pool(8, d.connected)
		works[p.name] = p.begin(d, pool)
		d.fill(pool)
	}
	d.demote()
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) { patience.Until(t, p.name+" works again", works[p.name]) })
	}
}
