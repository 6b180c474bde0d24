package pawltest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
)

// A drain publishes the due events of its sink, each aggregate in order. Refused ones are left.
func TestDrainRelay(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	write := func(events ...outbox.Event) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := outbox.Append(t.Context(), tx, events...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	about := func(order, what string) outbox.Event {
		return outbox.Event{Type: what, AggregateType: "order", AggregateID: order, Value: order}
	}
	other := about("9", "Other")
	other.SinkName = "audit"
	write(about("1", "Placed"), about("1", "Paid"), about("2", "Placed"), other)
	write(about("1", "Shipped"), about("2", "Refused"), about("2", "Later"))

	got := pawltest.DrainRelay(t, pool, outbox.Config{Sink: outbox.Func(func(_ context.Context, m pawl.Message) error {
		if m.Type == "Refused" {
			return errors.New("not this one")
		}
		return nil
	})})
	order := map[string]string{}
	for _, m := range got.Published {
		order[m.AggregateID] += " " + m.Type
	}
	if len(order) != 2 || order["1"] != " Placed Paid Shipped" || order["2"] != " Placed" {
		t.Errorf("published %v", order)
	}
	if len(got.Refused) != 1 || got.Refused[0].Type != "Refused" || got.Refused[0].Err == nil {
		t.Errorf("refused %+v", got.Refused)
	}
	if len(got.Left) != 2 || got.Left[0].Attempts != 1 {
		t.Errorf("left %+v", got.Left)
	}
	if again := pawltest.DrainRelay(t, pool, outbox.Config{}); len(again.Published) != 0 || len(again.Left) != 2 {
		t.Errorf("a second drain published %+v and left %d", again.Published, len(again.Left))
	}
	if audit := pawltest.DrainRelay(t, pool, outbox.Config{SinkName: "audit"}); len(audit.Published) != 1 || audit.Published[0].Type != "Other" || len(audit.Left) != 0 {
		t.Errorf("the other sink: %+v", audit)
	}
}

// A message that the sink cannot carry becomes a dead letter without being sent, as in production.
func TestDrainRelay_AsksACarrier(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := outbox.Append(t.Context(), tx, outbox.Event{Type: "Big", Payload: make([]byte, 100)}, outbox.Event{Type: "Small", Payload: []byte("x")})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got := pawltest.DrainRelay(t, pool, outbox.Config{Sink: smallSink{}})
	if len(got.Published) != 1 || got.Published[0].Type != "Small" || len(got.Refused) != 0 || len(got.Left) != 1 || got.Left[0].Status != "dead_letter" {
		t.Errorf("%+v", got)
	}
}

type smallSink struct{}

func (smallSink) Publish(context.Context, []pawl.Message) []error { return nil }

func (smallSink) Carries(m pawl.Message) error {
	if len(m.Payload) > 10 {
		return errors.New("too big")
	}
	return nil
}

// A partition takes events singly or in batches, and refuses those of one type.
type partition struct {
	refuses string
	batches int
}

func (p *partition) Publish(_ context.Context, ms []pawl.Message) []error {
	errs := make([]error, len(ms))
	for i, m := range ms {
		if m.Type == p.refuses {
			errs[i] = errors.New("not this one")
		}
	}
	return errs
}

func (p *partition) PublishBatch(ctx context.Context, ms []pawl.Message) (accepted int, err error) {
	p.batches++
	for i, err := range p.Publish(ctx, ms) {
		if err != nil {
			return i, err
		}
	}
	return len(ms), nil
}

// A BatchSink gets batches in a drain too. Each refusal of a batch is reported.
func TestDrainRelay_TakesBatches(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, what := range []string{"Placed", "Paid", "Refused", "Later"} {
			if _, err := outbox.Append(t.Context(), tx, outbox.Event{Type: what, AggregateType: "order", AggregateID: "1", Payload: []byte("x")}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sink := &partition{refuses: "Refused"}
	got := pawltest.DrainRelay(t, pool, outbox.Config{Sink: sink})
	if len(got.Published) != 2 || got.Published[0].Type != "Placed" || got.Published[1].Type != "Paid" || sink.batches == 0 {
		t.Errorf("%d batches, published %+v", sink.batches, got.Published)
	}
	if len(got.Refused) != 2 || got.Refused[1].Type != "Refused" || len(got.Left) != 2 || got.Left[0].Attempts != 1 {
		t.Errorf("refused %+v, left %+v", got.Refused, got.Left)
	}
}
