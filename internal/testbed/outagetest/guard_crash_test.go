package outagetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/pawltest"
)

const crashThings = `create table thing (id bigint primary key, status text not null default 'pending', claimed_at timestamptz, completed_at timestamptz,
  last_error text, attempt_count int not null default 0, created_at timestamptz not null default now() - interval '1 hour');
insert into thing (id) select g from generate_series(1, 6) as g`

// A guarded is a bed with a table of six rows. The work on row 1 crashes the server.
type guarded struct {
	*bed
	pool    *pgxpool.Pool
	rows    *guard.Rows
	crashes atomic.Int32
	charged charges
}

func setupGuarded(t *testing.T) *guarded {
	t.Helper()
	b := &guarded{bed: setup(t, nil, crashThings)}
	b.pool = b.bed.pool(12, nil)
	rows, err := guard.New(b.pool, guard.Table{Name: "thing", CreatedAt: "created_at"})
	b.must(err)
	b.rows = rows
	return b
}

func (b *guarded) work(id string) guard.Work {
	return func(ctx context.Context, tx pgx.Tx) (any, error) {
		if id == "1" {
			b.crashes.Add(1)
			return nil, crash(ctx, tx)
		}
		return nil, slowly(ctx, tx, id)
	}
}

// wantCharged checks that row 1 has this number of attempts and the others one each.
func (b *guarded) wantCharged(attempts int, why string) {
	b.Helper()
	if got := b.count("select count(*) from thing as t where t.id = 1 and t.status = 'error' and t.attempt_count = $1 and t.last_error ~ $2", attempts, why); got != 1 {
		b.Errorf("the row of the culprit does not hold %d attempts and %q", attempts, why)
	}
	if got := b.count("select count(*) from thing as t where t.id > 1 and t.status = 'completed' and t.attempt_count = 1"); got != 5 {
		b.Errorf("%d rows were completed at their first attempt, want 5", got)
	}
	b.wantEffects(5)
	if n := b.crashes.Load(); n < 3 {
		b.Errorf("charged after %d crashes: an outage takes one attempt, or two", n)
	}
}

// A row whose work crashes the server each time is charged, and its message is dead-lettered. The
// rows beside it are not charged.
func TestCrash_OfAGuardedRow(t *testing.T) {
	t.Parallel()
	b := setupGuarded(t)
	s := &pawltest.Source{}
	for id := range 6 {
		s.Send(pawl.Delivery{Key: fmt.Sprint(id + 1), Payload: []byte("x")})
	}
	c, err := consumer.New(b.pool, consumer.Config{Name: "c", Source: s, Concurrency: 3, Hooks: b.charged.hooks(), Handler: consumer.Trigger(func(ctx context.Context, m consumer.Message[[]byte]) error {
		return b.rows.Once(ctx, m.Key, b.work(m.Key))
	})})
	b.must(err)
	b.starts(c)
	patience.Until(t, "all is acknowledged", func() bool { return s.Open() == 0 })
	b.wantCharged(1, "the server (went away|answers others)")
	b.charged.want(b.bed, 1)
}

// A Sweeper retries such a row until its attempts are used up.
func TestCrash_OfASweptRow(t *testing.T) {
	t.Parallel()
	const attempts = 2
	b := setupGuarded(t)
	sweeper, err := b.rows.Sweeper(guard.SweeperConfig{Every: 50 * time.Millisecond, PendingAfter: 100 * time.Millisecond, Wait: time.Millisecond, MaxAttempts: attempts},
		func(ctx context.Context, id string) error { return b.rows.Once(ctx, id, b.work(id)) })
	b.must(err)
	b.goes(func(ctx context.Context) error {
		sweeper.Run(ctx)
		return nil
	})
	b.until("the culprit is not driven any more, and the others are completed", "select count(*) from thing as t where t.status <> 'completed' and t.last_error not like 'final: %' is not false", 0)
	b.wantCharged(attempts, "^final: .*the server (went away|answers others)")
}

// A blocking is a source in which a released delivery blocks others.
type blocking struct{ *pawltest.Source }

func (blocking) Info() pawl.SourceInfo { return pawl.SourceInfo{ReleaseBlocks: true} }

// A trigger whose own transaction crashes the server each time is stored in the database, which
// counts its attempts. It does not block other messages.
func TestCrash_OfATrigger(t *testing.T) {
	t.Parallel()
	b := setupGuarded(t)
	s := blocking{&pawltest.Source{}}
	for id := range 6 {
		s.Send(pawl.Delivery{Key: fmt.Sprint(id + 1), Payload: []byte("x")})
	}
	var crashed, held atomic.Bool
	c, err := consumer.New(b.pool, consumer.Config{Name: "c", Source: s, Concurrency: 1, Hooks: b.charged.hooks(), Handler: consumer.Trigger(func(ctx context.Context, m consumer.Message[[]byte]) error {
		if m.Key == "1" && crashed.Load() {
			return pawl.Final(errors.New("it is in the database"))
		}
		if m.Key == "1" && verdict.HeldIn(received(ctx, m)) {
			held.Store(true)
		}
		return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			_, err := b.work(m.Key)(ctx, tx)
			return err
		})
	})})
	b.must(err)
	b.starts(c)
	patience.Until(t, "all is acknowledged", func() bool { return s.Open() == 0 })
	crashed.Store(true)
	if !held.Load() {
		t.Error("it was not exclusive before it was given up")
	}
	b.until("the culprit is a dead letter, and nothing else is open", "select 10 * count(*) filter (where j.status = 'dead_letter') + count(*) from pawl.job as j", 11)
	if got := b.count("select count(*) from pawl_v1.dead_letters as d where d.last_errors::text ~ 'the server (went away|answers others)'"); got != 1 {
		t.Error("its history does not tell of the crashes")
	}
	b.wantEffects(5)
}

// Work that would be charged waits for the attempt that holds Exclusive. If that attempt itself
// calls the work, it must not wait for itself.
func TestCrash_OfARowWithinAnAttempt(t *testing.T) {
	t.Parallel()
	b := setupGuarded(t)
	var holder *verdict.Exclusive
	// called reports whether the work was called in time while another attempt holds Exclusive.
	called := func(ctx context.Context, within bool) (bool, error) {
		b.count("with pending as (update thing set status = 'pending' where id = 1 returning 1) select count(*) from pending")
		holder = &verdict.Exclusive{}
		b.must(holder.Acquire(ctx))
		defer holder.Release()
		if within {
			ctx = holder.Context(ctx)
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		before := b.crashes.Load()
		err := b.rows.Once(ctx, "1", b.work("1"))
		return b.crashes.Load() > before, err
	}
	patience.Until(t, "the work would be charged, and waits", func() bool {
		was, err := called(t.Context(), false)
		return !was && errors.Is(err, context.DeadlineExceeded)
	})
	patience.Until(t, "within the attempt it does not wait", func() bool {
		was, _ := called(t.Context(), true)
		return was
	})
}
