package pawlsqs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// The whole pipeline runs on virtual time with a real PostgreSQL. A handler takes ten minutes, no
// other receiver gets its message, and there is one effect. A goroutine that waits for a socket
// stops the clock until it has its response. LISTEN would stop it forever, so it is off.
func TestVirtualTime_WithPostgres(t *testing.T) {
	t.Parallel()
	// its server runs outside the bubble
	url := pawltest.URL(t, "create table effect (key text not null)")
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		f.send("order-1")
		pool, err := pgxpool.New(t.Context(), url)
		f.must(err)
		defer pool.Close()
		consumer, err := consumer.New(pool, consumer.Config{Name: "orders", Source: f.source, Concurrency: 1, RetryConcurrency: 1,
			// The database's clock is not the bubble's.
			Retention: consumer.Retention{Forever: true},
			Presence:  job.Presence{Off: true}, Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
				time.Sleep(10 * time.Minute)
				return apply(ctx, tx, d)
			}).With(consumer.TxPolicy{Policy: consumer.Policy{Timeout: time.Hour}})})
		f.must(err)
		ctx, stop := context.WithTimeout(t.Context(), 11*time.Minute)
		defer stop()
		f.must(consumer.Run(ctx))
		var effects int
		f.must(pool.QueryRow(t.Context(), "select count(*) from effect").Scan(&effects))
		if got := f.server.Stats("q"); effects != 1 || got.Received != 1 || got.Deleted != 1 {
			t.Errorf("%d effects, server %+v", effects, got)
		}
	})
}

// A fifoConsumer is a consumer on a FIFO queue, on virtual time with a real PostgreSQL. wrote
// returns the keys of its effects in commit order.
type fifoConsumer struct {
	*fixture
	pool *pgxpool.Pool
}

func inFIFOConsumer(t *testing.T, test func(f *fifoConsumer)) {
	t.Helper()
	t.Parallel()
	url := pawltest.URL(t, "create table effect (id bigint generated always as identity, key text not null)")
	synctest.Test(t, func(t *testing.T) {
		f := &fifoConsumer{fixture: setupFIFO(t, sqstest.Faults{AbandonedPolls: true}, pawlsqs.Config{})}
		var err error
		f.pool, err = pgxpool.New(t.Context(), url)
		f.must(err)
		defer f.pool.Close()
		test(f)
	})
}

// run consumes until the returned function is called. It has its own source, as another process
// would.
func (f *fifoConsumer) run(handler func(context.Context, pgx.Tx, consumer.Message[[]byte]) error) (stop func()) {
	f.Helper()
	source, err := pawlsqs.Open(f.Context(), f.client, fifoQueue, pawlsqs.Config{Wait: time.Second})
	f.must(err)
	consumer, err := consumer.New(f.pool, consumer.Config{Name: "orders", Source: source, ShutdownTimeout: time.Second,
		Handler:     consumer.HandleTx(handler).With(consumer.TxPolicy{Policy: consumer.Policy{Timeout: time.Hour, Backoff: job.Backoff{Base: 100 * time.Millisecond}}}),
		Retention:   consumer.Retention{Forever: true}, // the database's clock is not the bubble's
		Concurrency: 1, RetryConcurrency: 1, Presence: job.Presence{Off: true}})
	f.must(err)
	ctx, cancel := context.WithCancel(f.Context())
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	return func() {
		cancel()
		f.must(<-ended)
	}
}

func (f *fifoConsumer) wrote() (keys string) {
	f.Helper()
	f.must(f.pool.QueryRow(f.Context(), "select coalesce(string_agg(e.key, ' ' order by e.id), '') from effect as e").Scan(&keys))
	return keys
}

func write(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
	_, err := tx.Exec(ctx, "insert into effect (key) values ($1)", d.Key)
	return err
}

// A process cannot reach SQS for longer than the visibility timeout. It loses its handles while a
// handler works and other messages wait behind it. All are redelivered, to it and to another
// process. Each takes effect once, in order.
func TestFIFO_LostHandlesKeepTheOrder(t *testing.T) {
	inFIFOConsumer(t, func(f *fifoConsumer) {
		f.sendIn("a", 1, 2, 3)
		f.server.SetFaults(sqstest.Faults{AbandonedPolls: true, FailEntry: func(c sqstest.Call, _ int) *sqstest.Error {
			if c.Op == "ChangeMessageVisibilityBatch" {
				return sqstest.Internal()
			}
			return nil
		}})
		first := f.run(func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
			time.Sleep(40 * time.Second)
			return write(ctx, tx, d)
		})
		time.Sleep(10 * time.Second)
		second := f.run(write)
		time.Sleep(25 * time.Second) // the handles have expired
		f.server.SetFaults(sqstest.Faults{AbandonedPolls: true})
		time.Sleep(3 * time.Minute)
		first()
		second()
		if got := f.wrote(); got != "a1 a2 a3" {
			t.Errorf("wrote %q", got)
		}
		if got := f.server.Stats(fifoQueue); got.Redelivered == 0 || got.Ready+got.InFlight != 0 {
			t.Errorf("server %+v", got)
		}
	})
}

// A failed delivery is stored with its group's order. Later messages of the group wait for it in
// the database; other groups do not.
func TestFIFO_FailedKeepsItsPlace(t *testing.T) {
	inFIFOConsumer(t, func(f *fifoConsumer) {
		f.sendIn("a", 1, 2, 3)
		failed := false
		stop := f.run(func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
			if d.OrderingKey != "a" && d.OrderingKey != "b" {
				return pawl.Final(fmt.Errorf("the ordering key is %q", d.OrderingKey))
			}
			if d.Key == "a1" && !failed {
				failed = true
				f.sendIn("b", 1)
				return errors.New("not now")
			}
			return write(ctx, tx, d)
		})
		var wrote string
		for range 1000 {
			if wrote = f.wrote(); strings.Count(wrote, " ") == 3 {
				break
			}
			time.Sleep(time.Second)
		}
		stop()
		if wrote != "b1 a1 a2 a3" || !failed {
			t.Errorf("wrote %q", wrote)
		}
	})
}

// A stop releases the messages behind a handler, whether it ends in time or not. Only the message
// still being handled stays hidden.
func TestFIFO_StopStrandsNothing(t *testing.T) {
	for _, takes := range []time.Duration{3500 * time.Millisecond, time.Hour} {
		t.Run(takes.String(), func(t *testing.T) {
			inFIFOConsumer(t, func(f *fifoConsumer) {
				f.sendIn("a", 1, 2, 3)
				working := make(chan struct{})
				stop := f.run(func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
					defer close(working)
					time.Sleep(takes) // ignores ctx
					return write(ctx, tx, d)
				})
				time.Sleep(3 * time.Second)
				start := time.Now()
				stop()
				took := time.Since(start)
				got := f.server.Stats(fifoQueue)
				want := sqstest.Stats{Ready: 2, InFlight: 1}
				if takes < time.Minute {
					want.InFlight = 0 // it took effect and is acknowledged
				}
				if got.Ready != want.Ready || got.InFlight != want.InFlight || got.Abandoned != 0 || took > 7*time.Second {
					t.Errorf("the stop took %v; server %+v", took, got)
				}
				<-working // before the bubble ends
			})
		})
	}
}
