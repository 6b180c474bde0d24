package schedule_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schedule"
)

// A bed is a test's own database.
type bed struct {
	*testing.T
	url      string
	pool     *pgxpool.Pool
	counters pawl.Counters // of what its keepers report
}

func setup(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, url: pawltest.URL(t)}
	b.pool = poolOf(t, b.url)
	return b
}

func poolOf(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) exec(statement string, args ...any) {
	b.Helper()
	_, err := b.pool.Exec(b.Context(), statement, args...)
	b.must(err)
}

func (b *bed) put(s schedule.Schedule, want schedule.Stored) {
	b.Helper()
	s.Queue, s.Kind = "q", "k"
	if got, err := schedule.Put(b.Context(), b.pool, s); err != nil || got != want {
		b.Fatalf("put %s: %s, %v, want %s", s.Name, got, err, want)
	}
}

// keep runs a keeper until the returned function is called, or the test ends.
func (b *bed) keep(cfg schedule.Config) (stop func()) {
	b.Helper()
	if cfg.Poll == 0 {
		cfg.Poll = 20 * time.Millisecond
	}
	cfg.Hooks = b.counters.Hooks()
	k, err := schedule.NewKeeper(b.pool, cfg)
	b.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := patience.Receive(b, "the keeper has stopped", done); err != nil {
			b.Errorf("Run: %v", err)
		}
	})
	b.Cleanup(stop)
	return stop
}

func one[T any](b *bed, query string, args ...any) (value T) {
	b.Helper()
	if err := b.pool.QueryRow(b.Context(), query, args...).Scan(&value); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
	return value
}

// until waits until a query returns true.
func (b *bed) until(what, query string, args ...any) {
	b.Helper()
	patience.Until(b, what, func() bool { return one[bool](b, query, args...) })
}

// untilReported waits until the keepers have reported an event at least want times.
func (b *bed) untilReported(kind pawl.EventKind, want int64) {
	b.Helper()
	patience.Until(b, fmt.Sprintf("%d events %s", want, kind), func() bool { return b.counters.Count(kind) >= want })
}

// grid returns a schedule's ticks so far. It fails the test unless each tick of the interval is
// there exactly once.
func (b *bed) grid(name string, first time.Time, every time.Duration) (made int) {
	b.Helper()
	var distinct int
	var from, to, next time.Time
	b.must(b.pool.QueryRow(b.Context(), `
with t as (select (j.headers ->> 'pawl-tick')::timestamptz as at from pawl.job as j where j.headers ->> 'pawl-schedule' = $1)
select count(*), count(distinct t.at), min(t.at), max(t.at), (select s.next_at from pawl.schedule as s where s.name = $1) from t`, name).
		Scan(&made, &distinct, &from, &to, &next))
	if distinct != made {
		b.Errorf("%s: %d ticks were doubled", name, made-distinct)
	}
	if !from.Equal(first) || !to.Add(every).Equal(next) || distinct != int(to.Sub(from)/every)+1 {
		b.Errorf("%s: %d ticks from %v to %v, next %v: some of them were lost; the first is %v, one each %v", name, distinct, from, to, next, first, every)
	}
	return made
}
