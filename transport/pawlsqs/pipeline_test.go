package pawlsqs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// A pipeline is a queue, a database, and consumers between them. Only the endpoint is simulated.
type pipeline struct {
	*fixture
	pool *pgxpool.Pool
}

// newPipeline creates a table without a unique constraint, so that a second effect shows.
func newPipeline(t *testing.T, faults sqstest.Faults) *pipeline {
	t.Helper()
	f := overLoopback(t, faults, pawlsqs.Config{Wait: time.Second})
	config, err := pgxpool.ParseConfig(pawltest.URL(t, "create table effect (key text not null)"))
	f.must(err)
	config.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	f.must(err)
	t.Cleanup(pool.Close)
	return &pipeline{f, pool}
}

// start runs one consumer until the test ends. It has its own source, as another process would.
func (p *pipeline) start(handler func(context.Context, pgx.Tx, consumer.Message[[]byte]) error) *pawl.Counters {
	p.Helper()
	source, err := pawlsqs.Open(p.Context(), p.client, "q", pawlsqs.Config{Wait: time.Second})
	p.must(err)
	return p.startOn(source, handler)
}

func (p *pipeline) startOn(source pawl.Source, handler func(context.Context, pgx.Tx, consumer.Message[[]byte]) error) *pawl.Counters {
	p.Helper()
	counters := &pawl.Counters{}
	f, err := consumer.New(p.pool, consumer.Config{Name: "orders", Source: source, Concurrency: 2, RetryConcurrency: 1, Hooks: counters.Hooks(),
		Handler: consumer.HandleTx(handler).With(consumer.TxPolicy{Policy: consumer.Policy{Lease: time.Second, MaxPayload: 100, MaxAttempts: 2,
			Backoff: job.Backoff{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond}}})})
	p.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	p.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			p.Errorf("run: %v", err)
		}
	})
	return counters
}

func (p *pipeline) sendBody(key, body string) {
	p.Helper()
	in := p.plain(body)
	if key != "" {
		in.MessageAttributes = map[string]types.MessageAttributeValue{
			"Idempotency-Key": {DataType: aws.String("String"), StringValue: &key}}
	}
	_, err := p.client.SendMessage(p.Context(), in)
	p.must(err)
}

func (p *pipeline) count(query string) (n int) {
	p.Helper()
	p.must(p.pool.QueryRow(p.Context(), query).Scan(&n))
	return n
}

func (p *pipeline) until(what string, reached func() bool) {
	p.Helper()
	patience.Until(p, what, reached)
}

// settled reports whether every message was acknowledged and no delivery waits for a retry.
func (p *pipeline) settled() bool {
	s := p.server.Stats("q")
	return s.Sent > 0 && s.Ready+s.Delayed+s.InFlight == 0 &&
		p.count("select count(*) from pawl.job as j where j.status <> 'dead_letter'") == 0
}

func apply(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
	if _, err := tx.Exec(ctx, "insert into effect values ($1)", d.Key); err != nil {
		return err
	}
	switch string(d.Payload) {
	case "poison":
		return pawl.Final(errors.New("no such customer"))
	case "panic":
		panic("index out of range")
	}
	return nil
}

// A message that no retry can help is acknowledged and becomes exactly one dead letter, with
// payload and reason. A duplicate of it makes no second one. Good messages take effect.
func TestConsumer_BadInputBecomesOneDeadLetter(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 101)
	for name, c := range map[string]struct{ key, body, why string }{
		"no key":                     {"", "body", "carries no idempotency key"},
		"reserved key":               {"pawl/mine", "body", "reserved"},
		"key too long":               {strings.Repeat("k", 3000), "body", "octets"},
		"body too long":              {"order-1", long, "the payload has 101 octets, the limit is 100"},
		"handler panics":             {"order-1", "panic", "index out of range"},
		"poison":                     {"order-1", "poison", "no such customer"},
		"known key, another payload": {"good", "another body", "payload"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, sqstest.Faults{Duplicate: func(a sqstest.Arrival) bool { return a.Receives == 1 }})
			p.start(apply)
			p.sendBody("good", "body")
			p.until("the good one took effect", func() bool { return p.count("select count(*) from effect") == 1 })
			p.sendBody(c.key, c.body)
			p.until("everything is settled", func() bool { return p.server.Stats("q").Sent == 2 && p.settled() })

			var letters int
			var body, why string
			err := p.pool.QueryRow(t.Context(), "select count(*) over (), d.payload_text, d.last_error from pawl_v1.dead_letters as d").Scan(&letters, &body, &why)
			if err != nil || letters != 1 || body != c.body || !strings.Contains(why, c.why) {
				t.Errorf("%d dead letters, payload %q, reason %q, %v; want one with %q", letters, body, why, err, c.why)
			}
			if n := p.count("select count(*) from effect"); n != 1 {
				t.Errorf("%d effects, want the good one alone", n)
			}
		})
	}
}

// SQS hands the same message to two workers. While the first handles it, the other releases its
// copy. Later it finds the message done.
func TestTwoWorkersRaceOnOneMessage_OneEffect(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, sqstest.Faults{Duplicate: func(a sqstest.Arrival) bool { return a.Receives == 1 }})
	entered, rivalMetIt := make(chan struct{}), make(chan struct{})
	var handled atomic.Int32
	p.send("order-1")
	p.startOn(&firstBatch{Source: p.source}, func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
		handled.Add(1)
		close(entered)
		select {
		case <-rivalMetIt:
			return apply(ctx, tx, d)
		case <-ctx.Done():
			return fmt.Errorf("the rival never met the message: %w", ctx.Err())
		}
	})
	<-entered
	rival := p.start(func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
		handled.Add(1)
		return apply(ctx, tx, d)
	})
	p.until("the rival was refused", func() bool { return rival.Count(pawl.EventConflict) > 0 })
	close(rivalMetIt)
	p.until("everything is settled", p.settled)

	if effects, rows := p.count("select count(*) from effect"), p.count("select count(*) from pawl.inbox"); effects != 1 || rows != 1 {
		t.Errorf("%d effects, %d inbox rows, want one each", effects, rows)
	}
	if n := handled.Load(); n != 1 {
		t.Errorf("the handler was entered %d times, want 1", n)
	}
	if n := rival.Count(pawl.EventDuplicateSkipped); n != 1 {
		t.Errorf("the rival absorbed %d duplicates, want 1", n)
	}
}

// A firstBatch receives until messages come, and then receives no more.
type firstBatch struct {
	pawl.Source
	came bool
}

func (s *firstBatch) Receive(ctx context.Context, max int) ([]pawl.Delivery, error) {
	if s.came {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ds, err := s.Source.Receive(ctx, max)
	s.came = len(ds) > 0
	return ds, err
}

// T37: by default a consumer keeps receipts as long as the queue may redeliver, and it refuses a
// shorter period. A message produced before that period is stored and not run, even if a redrive
// gave it a new copy.
func TestT37_StaleMessagesAreNotRun(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	p := newPipeline(t, sqstest.Faults{}) // its queue keeps messages for four days
	sender, err := pawlsqs.OpenSender(t.Context(), p.client, "q", "")
	p.must(err)
	if n := p.count(`with ancient as (
  insert into pawl.inbox (consumer, key, hash, processed_at, received_at)
  select 'orders', 'ancient', sha256(''), now(), now() - interval '108 hours' returning 1)
select count(*) from ancient`); n != 1 {
		t.Fatalf("%d rows", n)
	}
	if n := p.count(`select p.purged from pawl_v1.inbox_purge('orders', 107 * 3600000, 10, '{"unreported": true}') as p`); n != 1 {
		t.Fatalf("%d forgotten", n)
	}
	counters := p.start(apply)
	p.must(sender.Send(t.Context(), pawlsqs.Message{Key: "old", Payload: []byte("x"), ProducedAt: time.Now().Add(-5 * day)},
		pawlsqs.Message{Key: "new", Payload: []byte("x"), ProducedAt: time.Now().Add(-3 * day)}))
	p.until("everything is settled", func() bool { return p.server.Stats("q").Sent == 2 && p.settled() })
	if n := p.count("select count(*) from effect where key = 'new'"); n != 1 || p.count("select count(*) from effect") != 1 {
		t.Errorf("the new one took effect %d times, all %d", n, p.count("select count(*) from effect"))
	}
	if n := p.count("select count(*) from pawl_v1.dead_letters as d where d.payload_text = 'x' and d.last_error like '%is forgotten%'"); n != 1 || counters.Count(pawl.EventDeliveryStale) != 1 {
		t.Errorf("%d dead letters, %d events", n, counters.Count(pawl.EventDeliveryStale))
	}
	_, err = consumer.New(p.pool, consumer.Config{Name: "orders", Source: p.source, Handler: consumer.HandleTx(apply), Retention: consumer.Retention{QueueRedelivery: 3 * day}})
	if pawl.CodeOf(err) != pawl.CodeArgumentInvalid || !strings.Contains(err.Error(), "the source may deliver a message again for 96h") {
		t.Errorf("remembering less: %v", err)
	}
}

// If the queue does not exist, opening a source fails at once with one line and the next step, and
// writes nothing to the database.
func TestConsumer_QueueThatDoesNotExist(t *testing.T) {
	t.Parallel()
	f := overLoopback(t, sqstest.Faults{}, pawlsqs.Config{})
	_, err := f.client.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: &f.url})
	f.must(err)
	for _, queue := range []string{"q", "other", f.url} {
		_, err := pawlsqs.Open(t.Context(), f.client, queue, pawlsqs.Config{})
		wantAdvice(t, err, "sqs.open", "does not exist", "create it, or check the region")
	}
}
