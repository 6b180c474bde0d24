package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/pawltest"
)

// abrupt are the ways in which a function does not return.
var abrupt = map[string]func(){"panics": func() { panic("boom") }, "exits": runtime.Goexit}

// If a function of the configuration panics or exits on a delivery, it becomes a dead letter.
func TestConsumer_AbruptFunctionsAreInvalid(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *bed, unless func(pawl.Delivery)){
		"Key": func(b *bed, unless func(pawl.Delivery)) {
			b.config.Key = func(d pawl.Delivery) string { unless(d); return d.Key }
		},
		"Fingerprint": func(b *bed, unless func(pawl.Delivery)) {
			b.config.Fingerprint = func(d pawl.Delivery) (pawl.Fingerprint, error) { unless(d); return pawl.FingerprintOf(d.Payload), nil }
		},
		"Exclusive": func(b *bed, unless func(pawl.Delivery)) {
			b.form.Exclusive = func(d pawl.Delivery) string { unless(d); return "" }
		},
		"SequenceGate.Of": func(b *bed, unless func(pawl.Delivery)) {
			b.form.SequenceGate = &consumer.SequenceGate{Mode: consumer.GateLatest, Of: func(d pawl.Delivery) (string, int64, error) { unless(d); return "", 0, nil }}
		},
		"many": func(b *bed, unless func(pawl.Delivery)) {
			b.batches(nothing)
			b.config.Key = func(d pawl.Delivery) string { unless(d); return d.Key }
		},
	} {
		for how, end := range abrupt {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.config.Concurrency = 1
				change(b, func(d pawl.Delivery) {
					if d.MessageID == "bad" {
						end()
					}
				})
				bad := order(2)
				bad.MessageID = "bad"
				b.source.Send(order(1), bad, order(3))
				b.consume()
				b.wantEffects(2)
				if n := b.count("select count(*) from pawl_v1.dead_letters where last_error like '%panic: boom, at %panic_test.go:%' or last_error like '%exited its goroutine%'"); n != 1 || b.counters.Count(pawl.EventInvalid) != 1 {
					t.Errorf("%d dead letters that say how, %v", n, b.counters)
				}
			})
		}
	}
}

// A delivery that its source could not read becomes a dead letter, even if it gets a key.
func TestConsumer_FaultIsInvalid(t *testing.T) {
	t.Parallel()
	called := func(context.Context, pawl.Delivery) error { panic("called for what could not be read") }
	for name, change := range map[string]func(b *bed){
		"one": func(b *bed) {
			b.config.Key = func(pawl.Delivery) string { return "another" }
			b.form.handle = func(ctx context.Context, _ pgx.Tx, d pawl.Delivery) error { return called(ctx, d) }
		},
		"many": func(b *bed) { b.batches(func(d pawl.Delivery) error { return called(t.Context(), d) }) },
		"handle": func(b *bed) {
			b.form.work = func(context.Context, *consumer.Attempt[[]byte]) error { return called(t.Context(), pawl.Delivery{}) }
		},
		"trigger": func(b *bed) { b.form.trigger = called },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			change(b)
			bad := order(1)
			bad.Fault = callback.Do("Config.OrderingKey", func() error { panic("boom") })
			b.source.Send(bad)
			b.consume()
			if n := b.count("select count(*) from pawl_v1.dead_letters where last_error like '%Config.OrderingKey: panic: boom%' and last_error not like '%mend the function%mend the function%'"); n != 1 || b.counters.Count(pawl.EventInvalid) != 1 {
				t.Errorf("%d dead letters with the fault, %v", n, b.counters)
			}
		})
	}
}

// A fragile source panics or exits once in each of its methods.
type fragile struct {
	*pawltest.Source
	end  func()
	mu   sync.Mutex
	done map[string]bool
}

func (f *fragile) once(method string) {
	f.mu.Lock()
	before := f.done[method]
	f.done[method] = true
	f.mu.Unlock()
	if !before {
		f.end()
	}
}

func (f *fragile) Receive(ctx context.Context, max int) ([]pawl.Delivery, error) {
	f.once("Receive")
	return f.Source.Receive(ctx, max)
}

func (f *fragile) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	f.once("Ack")
	return f.Source.Ack(ctx, rs...)
}

func (f *fragile) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	f.once("Release")
	return f.Source.Release(ctx, delay, ds...)
}

func (f *fragile) StillHeld(pawl.Delivery) bool {
	f.once("StillHeld")
	return true
}

func (f *fragile) Finish(context.Context) error {
	f.once("Finish")
	return nil
}

// A source that panics or exits is reported, and every message takes effect once.
func TestConsumer_AbruptSource(t *testing.T) {
	t.Parallel()
	for how, end := range abrupt {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			source := &fragile{Source: &pawltest.Source{Invisibility: time.Second}, end: end, done: map[string]bool{}}
			b.source, b.config.Source, b.config.Concurrency = source.Source, source, 1
			b.form.Mode = consumer.RetryFromSource // the first failure is released
			failed := false
			b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
				if !failed {
					failed = true
					return errors.New("not now")
				}
				return apply(ctx, tx, d)
			}
			b.source.Send(order(1), order(2), order(3))
			b.consume()
			b.wantEffects(3)
			for kind, want := range map[pawl.EventKind]int64{pawl.EventReceiveFailed: 1, pawl.EventAckFailed: 1, pawl.EventError: 3} {
				// EventError counts Release, StillHeld and Finish.
				if n := b.counters.Count(kind); n < want {
					t.Errorf("%d events %s, want %d", n, kind, want)
				}
			}
		})
	}
}

// A hook that exits its goroutine does not end the caller's.
func TestConsumer_HookExits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Concurrency, b.config.Hooks = 1, pawl.Hooks{OnEvent: func(context.Context, pawl.Event) { runtime.Goexit() }}
	b.source.Send(order(1), order(2), order(3))
	b.consume()
	b.wantEffects(3)
}

// A locked writer is safe for several goroutines.
type locked struct {
	sync.Mutex
	strings.Builder
}

func (l *locked) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Builder.Write(p)
}

func TestConsumer_PanicIsLoggedWithItsStack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var log locked
	b.config.Hooks = pawl.LogTo(slog.New(slog.NewTextHandler(&log, nil)))
	b.config.Key = func(pawl.Delivery) string { panic("boom") }
	b.source.Send(order(1))
	b.consume()
	log.Lock()
	defer log.Unlock()
	if !strings.Contains(log.String(), "stack=") || !strings.Contains(log.String(), "TestConsumer_PanicIsLoggedWithItsStack") {
		t.Errorf("the log has no stack:\n%s", log.String())
	}
}
