package pawlnats_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

// A pipeline is a stream, a database, and consumers between them. Its table has no unique
// constraint, so a duplicate effect shows.
type pipeline struct {
	*fixture
	pool *pgxpool.Pool
}

func newPipeline(t *testing.T, o options) *pipeline {
	t.Helper()
	config, err := pgxpool.ParseConfig(pawltest.URL(t, "create table effect (id bigint generated always as identity, key text not null)"))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &pipeline{setup(t, o), pool}
}

// run consumes through a source until the returned function is called.
func (p *pipeline) run(source pawl.Source, handler func(context.Context, pgx.Tx, consumer.Message[[]byte]) error) (stop func()) {
	p.Helper()
	return p.consume(consumer.Config{Source: source, Concurrency: 4, RetryConcurrency: 1, ShutdownTimeout: time.Minute,
		Hooks: (&pawl.Counters{}).Hooks(),
		Handler: consumer.HandleTx(handler).With(consumer.TxPolicy{Policy: consumer.Policy{MaxPayload: 1000, MaxAttempts: 5,
			Backoff: job.Backoff{Base: 20 * time.Millisecond, Max: 100 * time.Millisecond}}})})
}

func (p *pipeline) consume(cfg consumer.Config) (stop func()) {
	p.Helper()
	cfg.Name, cfg.Retention = "orders", consumer.Retention{Forever: true}
	c, err := consumer.New(p.pool, cfg)
	p.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			p.Errorf("run: %v", err)
		}
	})
	p.Cleanup(stop)
	return stop
}

func write(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
	_, err := tx.Exec(ctx, "insert into effect (key) values ($1)", m.Key)
	return err
}

func (p *pipeline) wrote() (all []string) {
	p.Helper()
	rows, err := p.pool.Query(context.Background(), "select e.key from effect as e order by e.id")
	p.must(err)
	all, err = pgx.CollectRows(rows, pgx.RowTo[string])
	p.must(err)
	return all
}

func (p *pipeline) letters() (n int) {
	p.Helper()
	p.must(p.pool.QueryRow(context.Background(), "select count(*) from pawl.job as j where j.status = 'dead_letter'").Scan(&n))
	return n
}

func (p *pipeline) settled() bool {
	var open int
	p.must(p.pool.QueryRow(context.Background(), "select count(*) from pawl.job as j where j.status <> 'dead_letter'").Scan(&open))
	i := p.info()
	return open == 0 && i.NumPending == 0 && i.NumAckPending == 0
}

// However often a message arrives, and under any key header, it takes effect once. Invalid messages
// become dead letters and do not block the stream.
func TestConsumer_EachOnce(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, options{})
	send := func(body string, headers ...string) {
		m := nats.NewMsg(p.stream + ".placed")
		m.Data = []byte(body)
		for i := 0; i < len(headers); i += 2 {
			m.Header.Set(headers[i], headers[i+1])
		}
		p.publish(m)
	}
	for range 3 {
		send("1", "Idempotency-Key", "a")
		send("2", "ce-source", "shop", "ce-id", "b")
		send("3", "Nats-Msg-Id", "c") // JetStream drops the resends
	}
	send("another body", "Idempotency-Key", "a") // another body under a known key
	send("no key")
	send(strings.Repeat("x", 1001), "Idempotency-Key", "too large")
	send("poison", "Idempotency-Key", "poison")
	p.run(p.source, func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
		if string(m.Payload) == "poison" {
			return pawl.Final(errors.New("no such customer"))
		}
		return write(ctx, tx, m)
	})
	eventually(t, "all is settled", p.settled)
	got := p.wrote()
	slices.Sort(got)
	if want := []string{pawl.Key("shop", "b"), "a", "c"}; !slices.Equal(got, want) || p.letters() != 4 {
		t.Errorf("wrote %v, %d dead letters", got, p.letters())
	}
}

// After a failure, later messages of the same key wait for the retry in the database. Other keys
// continue, even in the same partition.
func TestConsumer_PartitionsKeepTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, options{consumer: jetstream.ConsumerConfig{MaxAckPending: 1}})
	parts := setupPartitions(t, p.server, 2)
	publish := func(key string, n int) {
		m := nats.NewMsg(parts.stream + ".0." + key) // both keys in one partition
		m.Header.Set("Idempotency-Key", fmt.Sprint(key, n))
		p.publish(m)
	}
	for n := range 5 {
		publish("a", n)
		publish("b", n)
	}
	var mu sync.Mutex
	failed := map[string]int{}
	for range 2 { // like two processes
		p.run(parts.open(t, connect(t, p.server.Addr()), pawlnats.Config{Wait: time.Second}), func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
			mu.Lock()
			failed[m.Key]++
			first := failed[m.Key] <= 2
			mu.Unlock()
			if m.OrderingKey == "a" && first {
				return errors.New("not now")
			}
			return write(ctx, tx, m)
		})
	}
	eventually(t, "all took effect", func() bool { return len(p.wrote()) >= 10 })
	var a, b []string
	for _, key := range p.wrote() {
		if strings.HasPrefix(key, "a") {
			a = append(a, key)
		} else {
			b = append(b, key)
		}
	}
	if !slices.Equal(a, []string{"a0", "a1", "a2", "a3", "a4"}) || !slices.Equal(b, []string{"b0", "b1", "b2", "b3", "b4"}) {
		t.Errorf("wrote %v and %v", a, b)
	}
}

// On shutdown, a consumer finishes running handlers and releases unstarted messages. Another
// consumer gets them at once, long before AckWait.
func TestConsumer_StopStrandsNothing(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, options{consumer: jetstream.ConsumerConfig{AckWait: 5 * time.Minute}})
	const n = 200
	for i := range n {
		p.send(fmt.Sprint("k", i))
	}
	began := make(chan struct{}, n)
	stop := p.run(p.source, func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
		began <- struct{}{}
		patience.Elapse(200 * time.Millisecond)
		return write(ctx, tx, m)
	})
	for range 6 {
		<-began
	}
	stop()
	if s := p.source.Stats(); s.Held != 0 || s.Released == 0 {
		t.Errorf("%+v", s)
	}
	js := connect(t, p.server.Addr())
	other, err := pawlnats.Open(t.Context(), js, p.stream, p.consumer, pawlnats.Config{})
	p.must(err)
	p.run(other, write)
	eventually(t, "the other has done the rest", func() bool { return len(p.wrote()) >= n })
	eventually(t, "all is settled", p.settled)
	got := p.wrote()
	slices.Sort(got)
	if len(got) != n || len(slices.Compact(got)) != n {
		t.Errorf("%d effects", len(got))
	}
}

// A server killed under load costs redeliveries. Each message takes effect once.
func TestConsumer_ServerComesAndGoes(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, options{consumer: jetstream.ConsumerConfig{AckWait: time.Second}})
	const n = 300
	p.run(p.source, func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
		patience.Elapse(5 * time.Millisecond)
		return write(ctx, tx, m)
	})
	for i := range n {
		if i%100 == 50 {
			p.server.Kill()
			p.must(p.server.Start(context.Background()))
			eventually(t, "connected again", p.js.Conn().IsConnected)
		}
		p.send(fmt.Sprint("k", i))
	}
	eventually(t, "all took effect", func() bool { return len(p.wrote()) >= n })
	eventually(t, "all is settled", p.settled)
	got := p.wrote()
	slices.Sort(got)
	if len(got) != n || len(slices.Compact(got)) != n || p.letters() != 0 {
		t.Errorf("%d effects, %d dead letters", len(got), p.letters())
	}
	t.Logf("%d of %d deliveries were redeliveries", p.source.Stats().Redelivered, p.source.Stats().Received)
}

// A stream without a MaxAge keeps messages forever, and its consumer reports that horizon.
func TestConsumer_ReportsAnUnlimitedHorizon(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, options{})
	var mu sync.Mutex
	var errs []error
	c, err := consumer.New(p.pool, consumer.Config{Name: "orders", Source: p.source, Retention: consumer.Retention{Forever: true}, Handler: consumer.HandleTx(write),
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			if e.Kind == pawl.EventError {
				mu.Lock()
				errs = append(errs, e.Err)
				mu.Unlock()
			}
		}}})
	p.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	eventually(t, "the consumer has reported, or failed to", func() bool {
		var reported int
		p.must(p.pool.QueryRow(t.Context(), "select count(*) from pawl.consumer as c where c.name = 'orders' and c.horizon_ms is not null").Scan(&reported))
		mu.Lock()
		defer mu.Unlock()
		return reported == 1 || len(errs) > 0
	})
	cancel()
	p.must(<-ended)
	if len(errs) > 0 {
		t.Error(errs)
	}
}

// JetStream counts the delivery of a message whose handler an orderly stop abandons. From SoloAfter
// on the message is a suspect, so it cannot stop one process after the other for ever.
func TestConsumer_AnAbandonedMessageBecomesASuspect(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, options{consumer: jetstream.ConsumerConfig{AckWait: time.Second}})
	m := nats.NewMsg(p.stream + ".placed")
	m.Header.Set("Idempotency-Key", "stops")
	p.publish(m)
	counters := &pawl.Counters{}
	start := func(source pawl.Source, handler func(context.Context, pgx.Tx, consumer.Message[[]byte]) error) (stop func()) {
		return p.consume(consumer.Config{Source: source, ShutdownTimeout: 50 * time.Millisecond, Hooks: counters.Hooks(),
			Handler: consumer.HandleTx(handler).With(consumer.TxPolicy{Policy: consumer.Policy{SoloAfter: 2}})})
	}
	called, exit := make(chan struct{}, 1), make(chan struct{})
	stop := start(p.source, func(context.Context, pgx.Tx, consumer.Message[[]byte]) error {
		called <- struct{}{}
		<-exit
		return errors.New("too late")
	})
	<-called
	stop()
	close(exit) // as the exit of its process
	eventually(t, "the death is known", func() bool {
		var known bool
		p.must(p.pool.QueryRow(t.Context(), "select q.outcome <> 'none' from pawl_v1.queue_death('inbox/orders') as q").Scan(&known))
		return known
	})
	next, err := pawlnats.Open(t.Context(), connect(t, p.server.Addr()), p.stream, p.consumer, pawlnats.Config{Wait: time.Second})
	p.must(err)
	start(next, write)
	eventually(t, "all is settled", func() bool { return len(p.wrote()) == 1 && p.settled() })
	if n := counters.Count(pawl.EventSuspect); n != 1 {
		t.Errorf("%d suspects, want 1", n)
	}
}
