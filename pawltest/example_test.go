package pawltest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
)

// A provider charges and does not answer. A retry with the same key does not charge again.
func ExampleNewProvider() {
	t := &pgtest.Example{} // in a test, your *testing.T
	defer t.End()
	p := pawltest.NewProvider(t, time.Hour, func(n int, _ *http.Request) pawltest.Lie {
		if n == 0 {
			return pawltest.FailAfter
		}
		return ""
	})
	post := func(key string) {
		r, err := http.NewRequest(http.MethodPost, p.URL+"/charges", strings.NewReader("1250 EUR"))
		if err != nil {
			panic(err)
		}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			panic(err)
		}
		_ = response.Body.Close()
		fmt.Println(response.StatusCode, "charges:", len(p.Charges()))
	}

	post("order-17")
	post("order-17")
	post("")
	// Output:
	// 500 charges: 1
	// 200 charges: 1
	// 200 charges: 2
}

// A mail bounces twice. Drain does not wait for the back-off.
func ExampleDrain() {
	t := &pgtest.Example{} // in a test, your *testing.T
	defer t.End()
	pool := pawltest.DB(t)
	_, err := job.Enqueue(t.Context(), pool, job.Request{Queue: "mail", Kind: "greet", Value: "ann"})
	fmt.Println(err, len(pawltest.Enqueued[string](t, pool, "greet", 1)))

	drained := pawltest.Drain(t, pool, job.Config{
		Queues: []job.Queue{{Name: "mail"}},
		Handlers: []job.Handler{job.Handle("greet", func(_ context.Context, t job.Task[string]) error {
			if t.Attempt < 3 {
				return errors.New("the mailbox is full")
			}
			return nil
		})},
		// Without Hooks, failures are logged.
		Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}},
	})
	fmt.Println(drained)
	// Output:
	// <nil> 1
	// 1 done, 2 retried
	// 	job 1 (greet), attempt 1: the mailbox is full
	// 	job 1 (greet), attempt 2: the mailbox is full
}

// Appended reads an open transaction.
func ExampleAppended() {
	t := &pgtest.Example{}
	defer t.End()
	tx, err := pawltest.DB(t).Begin(t.Context())
	if err != nil {
		panic(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = outbox.Append(t.Context(), tx, outbox.Event{Type: "OrderPlaced", AggregateType: "order", AggregateID: "17", Value: map[string]int{"cents": 1250}})
	placed := pawltest.Appended[map[string]int](t, tx, "OrderPlaced", 1)[0]
	fmt.Println(err, placed.AggregateID, placed.Value["cents"])
	// Output: <nil> 17 1250
}

// One message comes three times and takes effect once.
func ExampleConsume() {
	t := &pgtest.Example{}
	defer t.End()
	pool := pawltest.DB(t, "create table orders (id text)")
	source := &pawltest.Source{}
	for range 3 {
		source.Send(pawl.Delivery{Key: "order-17", Payload: []byte("1250 EUR")})
	}
	n := pawltest.Consume(t, pool, consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
		_, err := tx.Exec(ctx, "insert into orders values ($1)", m.Key)
		return err
	})})
	fmt.Println(n.Count(pawl.EventSucceeded), "succeeded,", n.Count(pawl.EventDuplicateSkipped), "duplicates")
	// Output: 1 succeeded, 2 duplicates
}

// The payout and the end of its job commit together, so there is one payout.
func ExampleCrashEverywhere() {
	t := &pgtest.Example{} // in a test, your *testing.T
	defer t.End()
	pawltest.CrashEverywhere(t, pawltest.JobTest{
		Schema: []string{"create table payout (cents int)"},
		Handler: job.HandleTx("pay", func(ctx context.Context, tx pgx.Tx, t job.Task[int]) error {
			_, err := tx.Exec(ctx, "insert into payout values ($1)", t.Value)
			return err
		}),
		Jobs: []job.Request{{Value: 1250}},
	})
	fmt.Println("one payout, wherever the process dies")
	// Output: one payout, wherever the process dies
}
