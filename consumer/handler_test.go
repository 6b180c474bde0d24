package consumer_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
)

type amount struct{ Cents int }

func book(ctx context.Context, tx pgx.Tx, m consumer.Message[amount]) error {
	_, err := tx.Exec(ctx, "insert into effect values ($1, $2::int::text)", m.Key, m.Value.Cents)
	return err
}

// typed are handlers of one payload type, one of each form. Each call is counted by its key.
func typed(b *bed, called func(key string)) map[string]consumer.Handler {
	return map[string]consumer.Handler{
		"HandleTx": consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[amount]) error {
			called(m.Key)
			return book(ctx, tx, m)
		}).With(consumer.TxPolicy{Policy: impatient}),
		"HandleTx, from the source": consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[amount]) error {
			called(m.Key)
			return book(ctx, tx, m)
		}).With(consumer.TxPolicy{Policy: impatient, Mode: consumer.RetryFromSource}),
		"HandleTx, stored first": consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[amount]) error {
			called(m.Key)
			return book(ctx, tx, m)
		}).With(consumer.TxPolicy{Policy: impatient, Mode: consumer.StoreFirst}),
		"HandleManyTx": consumer.HandleManyTx(func(ctx context.Context, tx pgx.Tx, ms []consumer.Message[amount]) error {
			for _, m := range ms {
				called(m.Key)
				if err := book(ctx, tx, m); err != nil {
					return err
				}
			}
			return nil
		}).With(consumer.ManyTxPolicy{Policy: impatient}),
		"HandleSQL": consumer.HandleSQL(func(ctx context.Context, tx *sql.Tx, m consumer.Message[amount]) error {
			called(m.Key)
			return bookSQL(ctx, tx, m)
		}).With(consumer.TxPolicy{Policy: impatient}),
		"HandleSQL, stored first": consumer.HandleSQL(func(ctx context.Context, tx *sql.Tx, m consumer.Message[amount]) error {
			called(m.Key)
			return bookSQL(ctx, tx, m)
		}).With(consumer.TxPolicy{Policy: impatient, Mode: consumer.StoreFirst}),
		"HandleManySQL": consumer.HandleManySQL(func(ctx context.Context, tx *sql.Tx, ms []consumer.Message[amount]) error {
			for _, m := range ms {
				called(m.Key)
				if err := bookSQL(ctx, tx, m); err != nil {
					return err
				}
			}
			return nil
		}).With(consumer.ManyTxPolicy{Policy: impatient}),
		"Handle, CommitSQL": consumer.Handle(func(ctx context.Context, a *consumer.Attempt[amount]) error {
			called(a.Key)
			return a.CommitSQL(ctx, func(ctx context.Context, tx *sql.Tx) error { return bookSQL(ctx, tx, a.Message) })
		}).With(impatient),
		"Handle": consumer.Handle(func(ctx context.Context, a *consumer.Attempt[amount]) error {
			called(a.Key)
			return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return book(ctx, tx, a.Message) })
		}).With(impatient),
		"Trigger": consumer.Trigger(func(ctx context.Context, m consumer.Message[amount]) error {
			called(m.Key)
			return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return book(ctx, tx, m) })
		}),
	}
}

func bookSQL(ctx context.Context, tx *sql.Tx, m consumer.Message[amount]) error {
	_, err := tx.ExecContext(ctx, "insert into effect values ($1, $2::int::text)", m.Key, m.Value.Cents)
	return err
}

// A payload that is not of the handler's type is a dead letter at once, with the reason, in every
// form. The handler never sees it, it is acknowledged, and its neighbours take effect.
func TestHandler_APayloadThatDoesNotDecodeIsFinal(t *testing.T) {
	t.Parallel()
	for form := range typed(nil, nil) {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var bad atomic.Int32
			b.config.Handler = typed(b, func(key string) {
				if key == "bad" || key == "none" {
					bad.Add(1)
				}
			})[form]
			b.source.Send(pawl.Delivery{Key: "bad", Payload: []byte(`{"Cents": "many"}`)}, pawl.Delivery{Key: "none", Payload: []byte("null")})
			for _, key := range []string{"a", "b", "c"} {
				b.source.Send(pawl.Delivery{Key: key, Payload: []byte(`{"Cents": 7}`)})
			}
			b.consume()
			b.wantEffects(3)
			if n := b.count("select count(*) from effect where body = '7'"); n != 3 {
				t.Errorf("%d effects of 7 cents, want 3", n)
			}
			if n := bad.Load(); n != 0 {
				t.Errorf("the handler saw it %d times", n)
			}
			if n := b.count("select count(*) from pawl_v1.dead_letters where last_error like '%does not fit%' and payload_text like '%many%' and attempts <= 1"); n != 1 {
				t.Errorf("%d dead letters with the reason", n)
			}
			if n := b.count("select count(*) from pawl_v1.dead_letters where last_error like '%cannot be null%'"); n != 1 {
				t.Errorf("%d dead letters of null", n)
			}
			if n := b.counters.Count(pawl.EventRetryable); n != 0 {
				t.Errorf("it was retried %d times", n)
			}
		})
	}
}

// A duplicate is absorbed even if its payload does not fit the handler's type.
func TestHandler_ADuplicateIsNotDecoded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.source.Send(order(1))
	b.consume()
	b.config.Handler = consumer.HandleTx(book).With(consumer.TxPolicy{Policy: impatient})
	b.source.Send(order(1))
	b.consume()
	b.wantEffects(1)
	if dup, dead := b.counters.Count(pawl.EventDuplicateSkipped), b.count("select count(*) from pawl_v1.dead_letters"); dup != 1 || dead != 0 {
		t.Errorf("%d duplicates, %d dead letters", dup, dead)
	}
}

// If an operator retries a trigger's dead letter, the trigger is called.
func TestTrigger_ADeadLetterIsRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Handler = typed(b, func(string) {})["Trigger"]
	b.source.Send(pawl.Delivery{Key: "bad", Payload: []byte("17")})
	b.consume()
	b.wantEffects(0)
	// the type was corrected
	b.config.Handler = consumer.Trigger(func(ctx context.Context, m consumer.Message[int]) error {
		return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			return book(ctx, tx, consumer.Message[amount]{Delivery: m.Delivery, Value: amount{m.Value}})
		})
	})
	if _, err := b.pool.Exec(t.Context(), "select pawl_v1.job_retry(j.id, 'ada', 'the type is repaired') from pawl.job as j"); err != nil {
		t.Fatal(err)
	}
	stop := b.start()
	b.until("it is done", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	stop()
	b.wantEffects(1)
}

// Middleware runs around every call of every form, at a retry too, and its error counts.
func TestMiddleware_IsAroundEveryCall(t *testing.T) {
	t.Parallel()
	for form := range typed(nil, nil) {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var mu sync.Mutex
			var order []string
			note := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, what)
			}
			b.config.Handler = typed(b, func(string) { note("handler") })[form]
			around := func(name string) consumer.Middleware {
				var tries atomic.Int32
				return func(ctx context.Context, c consumer.Call, next func(context.Context) error) error {
					if lent := c.Tx != nil; lent != !(strings.HasPrefix(form, "Trigger") || form == "Handle" || strings.HasPrefix(form, "Handle,")) {
						t.Errorf("a transaction is lent: %v", lent)
					}
					if c.Consumer != "orders" || len(c.Deliveries) != 1 || c.Deliveries[0].Key != "k" {
						t.Errorf("it sees %+v", c)
					}
					note(name)
					if n := tries.Add(1); name == "inner" && n == 1 {
						return errors.New("not the first time")
					}
					return next(ctx)
				}
			}
			b.config.Middleware = []consumer.Middleware{around("outer"), around("inner")}
			b.source.Send(pawl.Delivery{Key: "k", Payload: []byte(`{"Cents": 7}`)})
			b.consume()
			b.wantEffects(1)
			if got := strings.Join(order, " "); got != "outer inner outer inner handler" {
				t.Errorf("called: %s", got)
			}
		})
	}
}

func TestHandler_WithChangesACopy(t *testing.T) {
	t.Parallel()
	one := consumer.HandleTx(book)
	two := one.With(consumer.TxPolicy{Mode: consumer.StoreFirst})
	if one.Policy().Mode != consumer.RetryFromDatabase || two.Policy().Mode != consumer.StoreFirst {
		t.Errorf("%v and %v", one.Policy(), two.Policy())
	}
	third := consumer.HandleSQL(bookSQL)
	if fourth := third.With(consumer.TxPolicy{Mode: consumer.StoreFirst}); third.Policy().Mode != consumer.RetryFromDatabase || fourth.Policy().Mode != consumer.StoreFirst {
		t.Errorf("%v and %v", third.Policy(), fourth.Policy())
	}
	if err := third.Apply(t.Context(), nil, pawl.Delivery{Payload: []byte("no JSON")}); !pawl.IsFinal(err) {
		t.Errorf("a payload that does not fit: %v", err)
	}
	if err := (consumer.SQLHandler{}).Apply(t.Context(), nil, pawl.Delivery{}); err == nil {
		t.Error("a zero handler was called")
	}
	if err := (consumer.TxHandler{}).Apply(t.Context(), nil, pawl.Delivery{}); err == nil {
		t.Error("a zero handler was called")
	}
	if err := one.Apply(t.Context(), nil, pawl.Delivery{Payload: []byte("no JSON")}); !pawl.IsFinal(err) {
		t.Errorf("a payload that does not fit: %v", err)
	}
}

// New refuses fields that a trigger does not use, with the field and the remedy.
func TestNew_RefusesFieldsATriggerDoesNotUse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Handler = consumer.Trigger(func(context.Context, consumer.Message[[]byte]) error { return nil })
	for field, change := range map[string]func(*consumer.Config){
		"Key": func(c *consumer.Config) { c.Key = consumer.PayloadKey },
		"Fingerprint": func(c *consumer.Config) {
			c.Fingerprint = func(pawl.Delivery) (pawl.Fingerprint, error) { return pawl.Fingerprint{}, nil }
		},
		"Retention": func(c *consumer.Config) { c.Retention = consumer.Retention{Audit: time.Hour} },
		"Keep":      func(c *consumer.Config) { c.Keep.Mode = consumer.KeepOff },
	} {
		config := b.config
		change(&config)
		if _, err := consumer.New(b.pool, config); !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "does not use the "+field) || !strings.Contains(err.Error(), "HandleTx") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := consumer.New(b.pool, b.config); err != nil {
		t.Error(err)
	}
}
