package pawlnats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

// windows are consumers whose MaxAckPending is at most the number of failing messages, or
// unlimited.
var windows = map[string]options{
	"in order":  {consumer: jetstream.ConsumerConfig{MaxAckPending: 1}, config: pawlnats.Config{OrderingKey: pawlnats.BySubject}},
	"a window":  {consumer: jetstream.ConsumerConfig{MaxAckPending: 5}},
	"no window": {consumer: jetstream.ConsumerConfig{MaxAckPending: -1}},
}

// badBefore publishes five failing messages, and then five good ones with other subjects.
func (p *pipeline) badBefore() {
	p.Helper()
	for n := range 10 {
		m := nats.NewMsg(fmt.Sprintf("%s.account%d", p.stream, n))
		m.Header.Set("Idempotency-Key", fmt.Sprint("k", n))
		m.Data = []byte("good")
		if n < 5 {
			m.Data = []byte("bad")
		}
		p.publish(m)
	}
}

// start runs a consumer until the test ends.
func (p *pipeline) start(cfg consumer.Config) *pawl.Counters {
	p.Helper()
	counters := &pawl.Counters{}
	cfg.Name, cfg.Source, cfg.Hooks = "orders", p.source, counters.Hooks()
	c, err := consumer.New(p.pool, cfg)
	p.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	p.Cleanup(func() {
		cancel()
		p.must(<-ended)
	})
	return counters
}

// A failing Trigger blocks no other message, however small the MaxAckPending. It works on a stream
// that keeps its messages forever.
func TestConsumer_FailedTriggerBlocksNoOther(t *testing.T) {
	t.Parallel()
	for name, o := range windows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, o)
			p.badBefore()
			var good, bad atomic.Int64
			p.start(consumer.Config{Handler: consumer.Trigger(func(_ context.Context, m consumer.Message[[]byte]) error {
				if string(m.Payload) == "bad" {
					bad.Add(1)
					return errors.New("it fails")
				}
				good.Add(1)
				return nil
			})})
			eventually(t, "the good ones are handled", func() bool { return good.Load() >= 5 })
			if name == "no window" {
				return
			}
			eventually(t, "the bad ones are stored", func() bool {
				var stored int
				p.must(p.pool.QueryRow(t.Context(), "select count(*) from pawl.job where queue = 'inbox/orders'").Scan(&stored))
				i := p.info()
				return stored == 5 && i.NumPending == 0 && i.NumAckPending == 0
			})
			eventually(t, "they are retried from the database", func() bool { return bad.Load() > 5 })
		})
	}
}

// RetryFromSource is refused if a failed message would block all others.
func TestConsumer_RetryFromSourceBlocksNoOther(t *testing.T) {
	t.Parallel()
	for name, o := range windows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, o)
			p.badBefore()
			cfg := consumer.Config{Name: "orders", Source: p.source, Retention: consumer.Retention{Forever: true},
				Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
					if string(m.Payload) == "bad" {
						return errors.New("it fails")
					}
					return write(ctx, tx, m)
				}).With(consumer.TxPolicy{Mode: consumer.RetryFromSource})}
			if name != "no window" {
				if _, err := consumer.New(p.pool, cfg); err == nil || !strings.Contains(err.Error(), "RetryFromDatabase") {
					t.Errorf("New returned %v", err)
				}
				return
			}
			p.start(cfg)
			eventually(t, "the good ones took effect", func() bool { return len(p.wrote()) == 5 })
		})
	}
}

// The stored deliveries of every consumer are bounded by default, with an ordered source too.
func TestConsumer_StoredDeliveriesAreBounded(t *testing.T) {
	t.Parallel()
	for name, o := range windows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, o)
			if _, err := p.pool.Exec(t.Context(), `insert into pawl.job (queue, kind, payload, available_at)
select 'inbox/orders', 'delivery', '', now() + interval '1 day' from generate_series(1, 100000)`); err != nil {
				t.Fatal(err)
			}
			counters := p.start(consumer.Config{Retention: consumer.Retention{Forever: true}, Handler: consumer.HandleTx(write)})
			eventually(t, "receiving is paused", func() bool { return counters.Count(pawl.EventReceivePaused) > 0 })
		})
	}
}
