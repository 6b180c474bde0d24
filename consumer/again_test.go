package consumer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/pawltest"
)

var operator = ops.By{Actor: "ann", Reason: "the configuration is corrected"}

// retryAll retries the consumer's dead letters. If safe, it excludes those that may take effect
// twice.
func (b *bed) retryAll(safe bool) int {
	b.Helper()
	t, err := ops.Jobs{Queue: "inbox/" + b.config.Name, NoDoubles: safe}.RetryAll(b.Context(), b.asks, operator, nil)
	if err != nil {
		b.Fatal(err)
	}
	return t.Done
}

// allForms are the forms of handler that claim their deliveries, each with apply.
var allForms = map[string]func(*form){
	"inline": func(*form) {},
	"sql": func(f *form) {
		f.sql = func(ctx context.Context, tx *sql.Tx, d pawl.Delivery) error { return f.handle(ctx, txn.Beneath(tx), d) }
	},
	"many": func(f *form) {
		f.many = func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
			for _, d := range ds {
				if err := f.handle(ctx, tx, d); err != nil {
					return err
				}
			}
			return nil
		}
	},
	"source": func(f *form) { f.Mode = consumer.RetryFromSource },
	"stored": func(f *form) { f.Mode = consumer.StoreFirst },
	"leased": func(f *form) {
		f.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
			return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return f.handle(ctx, tx, a.Delivery) })
		}
	},
}

// broken are the causes for which a delivery is invalid until the configuration is corrected.
var broken = map[string]func(b *bed, corrected *bool){
	"no key": func(b *bed, corrected *bool) {
		b.config.Key = func(d pawl.Delivery) string {
			if *corrected {
				return "order/" + d.Attributes["order"]
			}
			return d.Attributes["Order"]
		}
	},
	"a key function that panics": func(b *bed, corrected *bool) {
		b.config.Key = func(d pawl.Delivery) string {
			if !*corrected {
				panic("no such attribute")
			}
			return "order/" + d.Attributes["order"]
		}
	},
	"a key that is too long": func(b *bed, corrected *bool) {
		b.config.Key = func(d pawl.Delivery) string {
			if !*corrected {
				return strings.Repeat(d.Key, 100)
			}
			// from the source's key, not from the one that Config.Key returned before
			return "order/" + d.Key
		}
	},
	"a payload that is too large": func(b *bed, corrected *bool) { b.form.MaxPayload = 3 },
	"a fingerprint that fails": func(b *bed, corrected *bool) {
		b.config.Fingerprint = func(d pawl.Delivery) (pawl.Fingerprint, error) {
			if !*corrected {
				return pawl.Fingerprint{}, errors.New("not of our schema")
			}
			return pawl.FingerprintOf(d.Payload), nil
		}
	},
}

// A delivery that could not be identified takes effect once under its key when an operator retries
// it, even if a copy arrives before or afterwards. The dead letter of a copy ends as a duplicate.
func TestAgain_AnInvalidDeliveryTakesEffectOnce(t *testing.T) {
	t.Parallel()
	for form, set := range allForms {
		for cause, plant := range broken {
			// All forms identify alike, and TestLetters covers the rest.
			if cause != "no key" && form != "inline" && form != "leased" {
				continue
			}
			t.Run(form+"/"+cause, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				corrected := false
				set(&b.form)
				plant(b, &corrected)
				sent := func(n int) pawl.Delivery {
					d := order(n)
					d.Attributes = map[string]string{"order": fmt.Sprint(n)}
					if cause == "no key" || cause == "a key function that panics" {
						d.Key = ""
					}
					return d
				}
				b.source.Send(sent(1), sent(1), sent(2), sent(3))
				b.consume()
				b.wantEffects(0)
				if n := b.count("select count(*) from pawl_v1.dead_letters"); n < 3 {
					t.Fatalf("%d dead letters", n)
				}
				corrected, b.form.MaxPayload = true, 0
				b.source.Send(sent(3)) // before the retry
				b.consume()
				b.wantEffects(1)
				if letters, retried := b.count("select count(*) from pawl_v1.dead_letters"), b.retryAll(true); retried != letters {
					t.Errorf("%d of %d letters were retried", retried, letters)
				}
				b.consume()
				b.wantEffects(3)
				b.source.Send(sent(1), sent(2), sent(3))
				b.consume()
				b.wantEffects(3)
				if n := b.counters.Count(pawl.EventDuplicateSkipped); n < 4 {
					t.Errorf("%d duplicates were reported", n)
				}
				for what, query := range map[string]string{"jobs": "select count(*) from pawl.job", "rows that nothing settled": "select count(*) from pawl.inbox where processed_at is null"} {
					if n := b.count(query); n != 0 {
						t.Errorf("%d %s are left", n, what)
					}
				}
			})
		}
	}
}

// A delivery that still cannot be identified is a dead letter again, with the current reason.
func TestAgain_StillInvalid(t *testing.T) {
	t.Parallel()
	for form, set := range allForms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			set(&b.form)
			reason := "first reason"
			b.config.Fingerprint = func(d pawl.Delivery) (pawl.Fingerprint, error) { return pawl.Fingerprint{}, errors.New(reason) }
			b.source.Send(order(1))
			b.consume()
			reason = "second reason"
			b.retryAll(true)
			b.consume()
			b.wantEffects(0)
			if n := b.count("select count(*) from pawl_v1.dead_letters where last_error like '%second reason%'"); n != 1 {
				t.Errorf("%d dead letters with the reason", n)
			}
		})
	}
}

// A delivery that turns out to be a mismatch when retried becomes a dead letter of that kind. A
// safe retry of all leaves it alone. An explicit retry applies it in addition to the first.
func TestAgain_ASafeRetryLeavesAMismatch(t *testing.T) {
	t.Parallel()
	for form, set := range allForms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			set(&b.form)
			b.config.Key = func(pawl.Delivery) string { return "" }
			b.source.Send(pawl.Delivery{Key: "k", Payload: []byte("two")})
			b.consume()
			b.config.Key = nil
			b.source.Send(pawl.Delivery{Key: "k", Payload: []byte("one")})
			b.consume()
			for range 2 {
				b.retryAll(true)
				b.consume()
				b.wantEffects(1)
			}
			if n := b.count("select count(*) from pawl_v1.dead_letters as d where d.last_errors -> -1 ->> 'code' = 'mismatch'"); n != 1 {
				t.Fatalf("%d mismatches among the dead letters", n)
			}
			b.retryAll(false)
			b.consume()
			if n := b.count("select count(*) from effect where key = 'k' and body = 'two'"); n != 1 {
				t.Errorf("%d effects of the retried mismatch", n)
			}
			b.source.Send(pawl.Delivery{Key: "k", Payload: []byte("two")}, pawl.Delivery{Key: "k", Payload: []byte("one")})
			b.consume()
			if n := b.count("select count(*) from effect"); n != 2 {
				t.Errorf("%d effects, want one of each payload", n)
			}
		})
	}
}

// A mismatch whose key was purged takes the key when retried, so a copy of it is a duplicate.
func TestAgain_AMismatchOfAForgottenKeyClaimsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Concurrency = 1
	b.source.Send(pawl.Delivery{Key: "k", Payload: []byte("one")}, pawl.Delivery{Key: "k", Payload: []byte("two")})
	b.consume()
	if r, err := (ops.DeliveryRef{Consumer: "orders", Key: "k"}).Forget(t.Context(), b.asks, operator); err != nil || !r.Changed() {
		t.Fatalf("%+v, %v", r, err)
	}
	b.retryAll(false)
	b.consume()
	b.source.Send(pawl.Delivery{Key: "k", Payload: []byte("two")})
	b.consume()
	if n := b.count("select count(*) from effect where body = 'two'"); n != 1 {
		t.Errorf("%d effects of the mismatch", n)
	}
}

// A delivery is stale if its key may have taken effect and been purged while its dead letter
// waited. Its age is its timestamp's, or else that of its dead letter.
func TestAgain_WhatMayBeForgottenIsStale(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Key = func(pawl.Delivery) string { return "" }
	b.source.Send(order(1))
	b.consume()
	b.config.Key = nil
	b.source.Send(order(1))
	b.consume()
	b.wantEffects(1)
	for _, move := range []string{ // simulates a purge, years later
		"delete from pawl.inbox where key = 'order-1'",
		"insert into pawl.forgotten (consumer, until) values ('orders', clock_timestamp()) on conflict (consumer) do update set until = excluded.until",
		"update pawl.job set created_at = created_at - interval '10 years'",
	} {
		if _, err := b.asks.Exec(t.Context(), move); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		b.retryAll(true)
		b.consume()
		b.wantEffects(1)
	}
	if n := b.count("select count(*) from pawl_v1.dead_letters as d where d.last_errors -> -1 ->> 'code' = '" + string(pawl.CodeDeliveryStale) + "'"); n != 1 {
		t.Fatalf("%d stale dead letters", n)
	}
	b.retryAll(false)
	b.consume()
	if n := b.count("select count(*) from effect"); n != 2 {
		t.Errorf("%d effects, want that of the explicitly retried stale delivery", n)
	}
}

// A delivery that is identified at its retry waits in its lane behind open deliveries.
func TestAgain_WaitsInItsLane(t *testing.T) {
	t.Parallel()
	for form, set := range allForms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			set(&b.form)
			write, open := b.form.handle, false
			b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
				if d.Key == "order-1" && !open {
					return pawl.Final(errors.New("not yet"))
				}
				return write(ctx, tx, d)
			}
			of := func(n int) pawl.Delivery {
				d := order(n)
				d.OrderingKey = "account"
				return d
			}
			b.source.Send(of(1)) // blocks its lane
			b.consume()
			b.config.Key = func(pawl.Delivery) string { return "" }
			b.source.Send(of(2))
			b.consume()
			b.config.Key = nil
			if _, err := b.asks.Exec(t.Context(), "select pawl_v1.job_retry(j.id, 'ann', 'corrected') from pawl.job as j where j.status = 'dead_letter' and j.lane_id is null"); err != nil {
				t.Fatal(err)
			}
			stop := b.start()
			b.until("the second waits", func() bool { return b.count("select count(*) from pawl.job where status = 'waiting'") == 1 })
			stop()
			b.wantEffects(0)
			open = true
			b.retryAll(true)
			b.consume()
			b.wantEffects(2)
		})
	}
}

// A delivery that is identified when it is retried passes its gate like any other.
func TestAgain_PassesItsGate(t *testing.T) {
	t.Parallel()
	b := setup(t, ran)
	b.gate(consumer.GateStrict)
	of := b.form.SequenceGate.Of
	b.form.SequenceGate.Of = func(pawl.Delivery) (string, int64, error) { return "", 0, errors.New("no number") }
	b.source.Send(numbered("a", 1))
	b.consume()
	b.form.SequenceGate.Of = of
	b.retryAll(true)
	stop := b.start()
	b.until("it is held", func() bool { return b.count("select count(*) from pawl.sequence_gate_held") == 1 })
	b.source.Send(numbered("a", 0), numbered("a", 1))
	b.until("both took effect", func() bool { return b.count("select count(*) from ran") == 2 })
	b.until("nothing is left", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	stop()
	if n := b.count("select count(*) from ran"); n != 2 {
		t.Errorf("%d effects", n)
	}
}

// All that identifies a delivery is kept octet for octet, and the source identifies it again.
func TestAgain_TheSourceIsAskedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Source = identifier{b.source, func(d pawl.Delivery) string { return d.Attributes["key"] }}
	raw := "\xff\x00order"
	d := pawl.Delivery{Payload: []byte("body"), KeyFault: "no header Key", VerifiedBy: "hmac/first", Fingerprint: pawl.FingerprintOf([]byte("meant")),
		Attributes: map[string]string{"key": "order-1", "raw": raw}, MessageID: "m", Log: "orders/3", Offset: 17}
	var asked pawl.Delivery
	b.config.Fingerprint = func(d pawl.Delivery) (pawl.Fingerprint, error) {
		asked = d
		return d.Fingerprint, nil
	}
	b.source.Send(d)
	b.consume()
	b.wantEffects(0)
	b.retryAll(true)
	b.consume()
	if n := b.count("select count(*) from effect where key = 'order-1'"); n != 1 {
		t.Errorf("%d effects under the source's key", n)
	}
	if asked.VerifiedBy != d.VerifiedBy || asked.Fingerprint != d.Fingerprint || asked.Attributes["raw"] != raw || asked.Log != d.Log || asked.Offset != d.Offset ||
		asked.MessageID != d.MessageID {
		t.Errorf("identified by %+v, want what came: %+v", asked, d)
	}
}

// An identifier finds keys only in what was stored, like a source with a corrected configuration.
type identifier struct {
	*pawltest.Source
	key func(pawl.Delivery) string
}

func (s identifier) Identify(d pawl.Delivery) pawl.Delivery {
	d.Key = s.key(d)
	return d
}

// A Trigger's dead letter is retried as it is, without the inbox, because its rows remember.
func TestAgain_TriggersAreCalled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.source.Send(pawl.Delivery{Payload: []byte("{}")})
	fits := false
	b.config.Handler = consumer.Trigger(func(ctx context.Context, m consumer.Message[loose]) error {
		fits = true
		return nil
	})
	b.consume()
	decodes = true
	b.retryAll(true)
	b.consume()
	if !fits || b.count("select count(*) from pawl.job") != 0 {
		t.Error("the trigger was not called")
	}
}

// decodes is whether loose can be decoded: its type was corrected.
var decodes bool

type loose struct{}

func (*loose) UnmarshalJSON([]byte) error {
	if !decodes {
		return errors.New("not of our schema")
	}
	return nil
}
