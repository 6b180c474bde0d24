package outbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
)

// held records the most connections of a pool in use at once. It counts releases as a tracer,
// because the pool's AfterRelease runs on its own goroutine and may come after the next acquire.
type held struct{ now, most atomic.Int32 }

func (h *held) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return ctx
}

func (h *held) TraceAcquireEnd(_ context.Context, _ *pgxpool.Pool, data pgxpool.TraceAcquireEndData) {
	if data.Err != nil {
		return
	}
	for now := h.now.Add(1); ; {
		if most := h.most.Load(); now <= most || h.most.CompareAndSwap(most, now) {
			return
		}
	}
}

func (h *held) TraceRelease(*pgxpool.Pool, pgxpool.TraceReleaseData) { h.now.Add(-1) }

func (h *held) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (h *held) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A logOf is a batch sink that counts messages.
type logOf struct{ n atomic.Int32 }

func (l *logOf) Publish(_ context.Context, ms []pawl.Message) []error {
	l.n.Add(int32(len(ms)))
	return nil
}

func (l *logOf) PublishBatch(ctx context.Context, ms []pawl.Message) (int, error) {
	l.Publish(ctx, ms)
	return len(ms), nil
}

// A relay uses few connections, however many events it holds: two for calls about batches, one to
// end jobs, one to claim, and briefly those of slow claims.
func TestRelay_TakesFewConnections(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	const aggregates, each = 400, 5
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		events := make([]outbox.Event, 0, aggregates*each)
		for i := range aggregates * each {
			events = append(events, outbox.Event{Type: "Changed", AggregateType: "order", AggregateID: fmt.Sprint(i % aggregates), Payload: []byte("{}")})
		}
		_, err := outbox.Append(t.Context(), tx, events...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var h held
	config := pool.Config()
	config.MaxConns = 30
	config.ConnConfig.Tracer = &h
	counted, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(counted.Close)
	var sink logOf
	relay, err := outbox.NewRelay(counted, outbox.Config{Sink: &sink, MaxPublish: 10, Concurrency: 200})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- relay.Run(ctx) }()
	patience.Until(t, "all events are published", func() bool { return sink.n.Load() >= aggregates*each })
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if most := h.most.Load(); most > 8 {
		t.Errorf("%d connections of the pool at once, want 8 at most", most)
	}
}
