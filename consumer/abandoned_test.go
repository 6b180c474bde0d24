package consumer_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/txn"
)

// A stopping handler stops its process in its first call for order-1. That call returns when let is
// closed, or with polite when its context ends. Other calls write the effect.
type stopping struct {
	polite    bool
	asked     chan struct{} // closed by the first call
	let       chan struct{}
	mu        sync.Mutex
	delivered []pawl.Delivery
}

func newStopping(polite bool) *stopping {
	return &stopping{polite: polite, asked: make(chan struct{}), let: make(chan struct{})}
}

// first makes the first call of a handler.
func (s *stopping) first(ctx context.Context, d pawl.Delivery) (was bool) {
	s.mu.Lock()
	if d.Key == order(1).Key {
		s.delivered = append(s.delivered, d)
		was = len(s.delivered) == 1
	}
	s.mu.Unlock()
	if !was {
		return false
	}
	close(s.asked)
	if s.polite {
		<-ctx.Done()
		return true
	}
	<-s.let
	return true
}

func (s *stopping) handle(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
	if s.first(ctx, d) {
		return context.Canceled
	}
	return apply(ctx, tx, d)
}

// inlineForms are the forms that call their handlers for fresh deliveries in a transaction of Pawl.
var inlineForms = map[string]func(*form, *stopping){
	"tx": func(f *form, s *stopping) { f.handle = s.handle },
	"sql": func(f *form, s *stopping) {
		f.sql = func(ctx context.Context, tx *sql.Tx, d pawl.Delivery) error { return s.handle(ctx, txn.Beneath(tx), d) }
	},
	"many": func(f *form, s *stopping) {
		f.many = func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error { return s.handle(ctx, tx, ds[0]) }
	},
	"many, sql": func(f *form, s *stopping) {
		f.manySQL = func(ctx context.Context, tx *sql.Tx, ds []pawl.Delivery) error {
			return s.handle(ctx, txn.Beneath(tx), ds[0])
		}
	},
	"sequence": func(f *form, s *stopping) {
		f.handle = s.handle
		f.SequenceGate = &consumer.SequenceGate{Mode: consumer.GateLatest, Of: func(d pawl.Delivery) (string, int64, error) { return d.Key, 1, nil }}
	},
}

// A delivery whose handler is abandoned by an orderly stop is a suspect from SoloAfter receives on,
// as after a death, in every form. So it cannot stop one process after the other for ever. A
// handler that returns when its context ends makes no suspect.
func TestStop_AnAbandonedDeliveryBecomesASuspect(t *testing.T) {
	t.Parallel()
	for name, set := range inlineForms {
		for how, polite := range map[string]bool{"abandoned": false, "returned": true} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				b, s := setup(t), newStopping(polite)
				set(&b.form, s)
				b.form.SoloAfter, b.form.batchSize, b.config.ShutdownTimeout = 2, 1, 50*time.Millisecond
				letGo := sync.OnceFunc(func() { close(s.let) })
				t.Cleanup(letGo)
				b.source.Invisibility = time.Hour
				d := order(1)
				d.SentAt = time.Now()
				b.source.Send(d, order(2))
				stop := b.start()
				<-s.asked
				b.until("the other one is done", func() bool { return b.source.Open() == 1 })
				stop()
				letGo() // as the exit of its process
				want := 1
				if polite {
					want = 0
				}
				if n := b.counters.Count(pawl.EventWastedWork); n != int64(want) {
					t.Errorf("%d events of wasted work, want %d", n, want)
				}
				if n := b.count("select (select count(*) from pawl.worker) + (select count(*) from pawl.death)"); n != want {
					t.Fatalf("%d workers did not leave, want %d", n, want)
				}
				if !polite {
					b.until("the death is known", func() bool {
						return b.count("select count(*) from pawl_v1.queue_death('inbox/orders') as q where q.outcome <> 'none'") == 1
					})
				}
				s.mu.Lock()
				again := s.delivered[0]
				s.mu.Unlock()
				_ = b.source.Release(t.Context(), 0, again) // the broker delivers it again
				b.consume()
				b.wantEffects(2)
				if n := b.counters.Count(pawl.EventSuspect); !polite && n != 1 {
					t.Errorf("%d suspects, want 1", n)
				}
			})
		}
	}
}

// A delivery whose Trigger is abandoned by an orderly stop is stored, where crashes are counted,
// and acknowledged.
func TestStop_AnAbandonedTriggerIsStored(t *testing.T) {
	t.Parallel()
	for how, polite := range map[string]bool{"abandoned": false, "returned": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b, s := setup(t), newStopping(polite)
			b.form.handle, b.config.ShutdownTimeout = nil, 50*time.Millisecond
			b.form.trigger = func(ctx context.Context, d pawl.Delivery) error {
				if s.first(ctx, d) {
					return context.Canceled
				}
				_, err := b.pool.Exec(ctx, "insert into effect values ($1, $2)", d.Key, string(d.Payload))
				return err
			}
			letGo := sync.OnceFunc(func() { close(s.let) })
			t.Cleanup(letGo)
			b.source.Invisibility = time.Hour
			b.source.Send(order(1))
			stop := b.start()
			<-s.asked
			stop()
			want := 1
			if polite {
				want = 0
			}
			if n := b.count("select count(*) from pawl.job where crashes > 0 and attempts = 0 and last_errors::text like '%had not returned%'"); n != want {
				t.Errorf("%d stored suspects, want %d", n, want)
			}
			if n := b.source.Open(); n != 1-want {
				t.Errorf("%d messages open, want %d", n, 1-want)
			}
			letGo()
			b.consume()
			b.wantEffects(1)
		})
	}
}
