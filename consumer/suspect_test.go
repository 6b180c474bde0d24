package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/solo"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// healthyWait is how long healthy deliveries may wait for suspects on a busy machine.
const healthyWait = solo.AloneWait + solo.AloneFor + 45*time.Second

func (b *bed) within(limit time.Duration, what string, reached func() bool) {
	b.Helper()
	patience.Within(b, limit, what, reached)
}

// died records the death of a process of the consumer.
func (b *bed) died(ago time.Duration) {
	b.Helper()
	if _, err := b.pool.Exec(b.Context(), "insert into pawl.death values ('inbox/orders', now() - $1::interval)", ago); err != nil {
		b.Fatal(err)
	}
}

// often is a delivery that comes for the third time.
func often(n int) pawl.Delivery {
	d := order(n)
	d.Receives, d.SentAt = 2, time.Now()
	return d
}

// A handler that ignores its context and a suspect beside it do not block other deliveries, in any
// form. Not parallel: other tests' handlers would enter the process's isolator too.
func TestSuspect_StuckHandlersBlockNoOther(t *testing.T) {
	goOn := make(chan struct{})
	var ran atomic.Int32
	handle := func(key string) error {
		if key == "hangs" {
			<-goOn
			return nil
		}
		ran.Add(1)
		return nil
	}
	for name, set := range map[string]func(c *form){
		"single": func(c *form) {
			c.handle = func(_ context.Context, _ pgx.Tx, d pawl.Delivery) error { return handle(d.Key) }
		},
		"batch": func(c *form) {
			c.batchSize = 1
			c.many = func(_ context.Context, _ pgx.Tx, ds []pawl.Delivery) error { return handle(ds[0].Key) }
		},
		"trigger": func(c *form) {
			c.trigger = func(_ context.Context, d pawl.Delivery) error { return handle(d.Key) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			goOn = make(chan struct{})
			ran.Store(0)
			b := setup(t)
			b.form.Timeout, b.config.Concurrency, b.form.handle = time.Second, 4, nil
			set(&b.form)
			b.source.Invisibility = time.Hour
			b.start()
			release := sync.OnceFunc(func() { close(goOn) })
			t.Cleanup(release)
			b.source.Send(pawl.Delivery{Key: "hangs", Payload: []byte("x")})
			b.source.Send(order(1))
			b.within(healthyWait, "the first is handled", func() bool { return ran.Load() == 1 })
			suspects := time.Now()
			for n := range 20 {
				isolator := solo.Process
				b.within(healthyWait, "a suspect may begin", func() bool {
					if err := isolator.Enter(t.Context(), 1); err != nil {
						t.Fatal(err)
					}
					s := isolator.Suspect()
					if s == nil {
						isolator.Leave(1)
						return false
					}
					go func() { s.Alone(context.Background()); s.Leave() }()
					return true
				})
				b.source.Send(order(2 + n))
			}
			b.within(time.Until(suspects.Add(20*2*(solo.AloneWait+solo.AloneFor)))+healthyWait, "20 healthy deliveries beside 20 suspects", func() bool { return ran.Load() == 21 })
			// After its limit and the grace it no longer counts as running.
			b.within(healthyWait, "the handler is left behind", func() bool { return b.counters.Count(pawl.EventError) > 0 })
			if err := solo.Process.Enter(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			b.within(healthyWait, "a suspect is due", func() bool { now, _ := solo.Process.Due(); return now })
			s := solo.Process.Suspect()
			if s == nil || !s.Alone(t.Context()) {
				t.Error("an abandoned handler still counts as running")
			}
			s.Leave()
			release()
		})
	}
}

// A delivery that came often is a suspect only if a process of the consumer has died since it was
// sent, for any cause of the redeliveries.
func TestSuspect_NeedsADeath(t *testing.T) {
	t.Parallel()
	old, unknown := often(1), often(1)
	old.SentAt, unknown.SentAt = time.Now().Add(-2*time.Hour), time.Time{}
	for name, c := range map[string]struct {
		d    pawl.Delivery
		died time.Duration
		want int64
	}{
		"no death":                {often(1), 0, 0},
		"no death, age not known": {unknown, 0, 0},
		"a death before":          {often(1), time.Hour, 0},
		"a death since":           {old, time.Hour, 1},
		"a death, age not known":  {unknown, time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suspects := func() int64 {
				b := setup(t)
				if c.died > 0 {
					b.died(c.died)
				}
				b.source.Send(c.d)
				b.consume()
				b.wantEffects(1)
				return b.counters.Count(pawl.EventSuspect)
			}
			n := suspects()
			// a consumer that stood still for three seconds may have died
			for again := 0; n > c.want && again < 4; again++ {
				n = suspects()
			}
			if n != c.want {
				t.Errorf("%d suspects, want %d", n, c.want)
			}
		})
	}
}

// A process that dies at once, again and again, is never swept. Its silence is enough.
func TestSuspect_SilenceMayBeDeath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.pool.Exec(t.Context(), `insert into pawl.worker (name, queues, seen_at) values ('gone', '["inbox/orders"]', now() - interval '4 seconds')`); err != nil {
		t.Fatal(err)
	}
	b.source.Send(often(1))
	b.consume()
	b.wantEffects(1)
	if n := b.counters.Count(pawl.EventSuspect); n != 1 {
		t.Errorf("%d suspects, want 1", n)
	}
}

// A delivery that finds its resource busy again and again is stored unsuspected.
func TestExclusive_ABusyResourceMakesNoSuspects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.died(0) // the worst case
	b.config.Concurrency, b.form.Lease = 6, 30*time.Second
	b.form.Exclusive = func(pawl.Delivery) string { return "one resource" }
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		patience.Elapse(50 * time.Millisecond)
		return apply(ctx, tx, d)
	}
	const n = 40
	for i := range n {
		d := order(i)
		d.SentAt = time.Now().Add(time.Hour) // after the death
		b.source.Send(d)
	}
	b.consume()
	b.wantEffects(n)
	if suspects := b.counters.Count(pawl.EventSuspect); suspects != 0 {
		t.Errorf("%d suspects, want none", suspects)
	}
	if b.counters.Count(pawl.EventConflict) == 0 || b.counters.Count(pawl.EventStored) == 0 {
		t.Errorf("%d conflicts, %d stored: this shows nothing", b.counters.Count(pawl.EventConflict), b.counters.Count(pawl.EventStored))
	}
}

// Resends that meet their slow first copy make no suspects.
func TestSuspect_ResendsOfASlowDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		close(entered)
		<-goOn
		return apply(ctx, tx, d)
	}
	b.source.Send(order(1))
	b.start()
	<-entered
	for range 5 {
		b.source.Send(often(1))
	}
	b.within(healthyWait, "the resends are given back", func() bool { return b.counters.Count(pawl.EventConflict) >= 5 })
	close(goOn)
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	b.wantEffects(1)
	if n := b.counters.Count(pawl.EventSuspect); n != 0 {
		t.Errorf("%d suspects, want none", n)
	}
}

// MaxCrashes reaches the sweep.
func TestConfig_MaxCrashes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.form.MaxCrashes = 2
	if _, err := b.pool.Exec(t.Context(), `with w as (insert into pawl.worker (name, lease, seen_at) values ('gone', '1 second', now() - interval '1 hour') returning id)
insert into pawl.job (queue, kind, payload, status, claimed_by, crashes) select 'inbox/orders', 'delivery', '', 'processing', w.id, 5 from w`); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.until("the sixth death, of two times three, ends it", func() bool { return b.count("select count(*) from pawl.job where status = 'dead_letter'") == 1 })
	b.form.MaxCrashes = 1001
	if _, err := consumer.New(b.pool, b.config); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("MaxCrashes 1001: %v", err)
	}
}

// A trigger is called for a second announcement of a semantic key: the row remembers.
func TestTrigger_TheRowRemembersNotTheSemanticKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var rows sync.Map
	var first, again atomic.Int32
	b.form.handle = nil
	b.form.trigger = func(_ context.Context, d pawl.Delivery) error {
		if _, done := rows.LoadOrStore(string(d.Payload), true); done {
			again.Add(1)
			return pawl.ErrAlreadyHandled
		}
		first.Add(1)
		return nil
	}
	for n := range 2 {
		b.source.Send(pawl.Delivery{Key: fmt.Sprint("message ", n), SemanticKey: "row 17", Payload: []byte("row 17")})
	}
	b.start()
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	if first.Load() != 1 || again.Load() != 1 {
		t.Errorf("handled %d times, found done %d times", first.Load(), again.Load())
	}
}

// Each failure of Receive is reported.
func TestReceive_FailuresAreReported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	broken := &brokenSource{Source: newSource()}
	b.source, b.config.Source = broken.Source, broken
	broken.Send(order(1))
	b.start()
	b.until("all acknowledged", func() bool { return broken.Open() == 0 })
	if n := b.counters.Count(pawl.EventReceiveFailed); n != 3 {
		t.Errorf("%d failures were reported, want 3", n)
	}
	b.wantEffects(1)
}

type brokenSource struct {
	*pawltest.Source
	failed atomic.Int32
}

func (s *brokenSource) Receive(ctx context.Context, limit int) ([]pawl.Delivery, error) {
	if s.failed.Add(1) <= 3 {
		return nil, errors.New("no answer")
	}
	return s.Source.Receive(ctx, limit)
}
