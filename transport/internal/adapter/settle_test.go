package adapter_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

type handle struct{ owner string }

// Only this source's deliveries are taken, and the error counts the others.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	ours := func(h *handle) bool { return h != nil && h.owner == "a" }
	mine := pawl.Delivery{Handle: &handle{"a"}}
	held, err := adapter.Deliveries("test.release", []pawl.Delivery{mine, {Handle: &handle{"b"}}, {Handle: "another type"}, {}, {Handle: (*handle)(nil)}}, ours)
	if len(held) != 1 || held[0] != mine.Handle || !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "4 of 5 deliveries") {
		t.Errorf("%v, %v", held, err)
	}
	if _, err := adapter.Deliveries("test.release", []pawl.Delivery{mine}, ours); err != nil {
		t.Error(err)
	}
}

// A receipt without a commit acknowledges nothing.
func TestReceipts_RefusesTheZeroReceipt(t *testing.T) {
	t.Parallel()
	held, err := adapter.Receipts("test.ack", make([]pawl.Receipt, 2), func(any) bool { return true })
	if len(held) != 0 || !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "2 of 2 receipts") {
		t.Errorf("%v, %v", held, err)
	}
}

// Each delivery counts with the broker's time, or else the producer's. Hooks get events even if the
// context has ended.
func TestReporter(t *testing.T) {
	t.Parallel()
	var got []pawl.Event
	r := adapter.Reporter{Scope: "orders", Hooks: pawl.Hooks{OnEvent: func(ctx context.Context, e pawl.Event) {
		if ctx.Err() != nil {
			t.Error("the context has ended")
		}
		got = append(got, e)
	}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	r.Received(ctx, "test.receive", []pawl.Delivery{{SentAt: ago(time.Hour), ProducedAt: ago(9 * time.Hour)}, {ProducedAt: ago(3 * time.Hour)}, {}})
	r.Received(ctx, "test.receive", []pawl.Delivery{{}})
	r.Received(ctx, "test.receive", nil)
	r.Count(ctx, pawl.EventReleased, "test.release", 0)
	r.Count(ctx, pawl.EventReleased, "test.release", 2)
	if len(got) != 4 || got[0].Scope != "orders" || got[0].Count != 3 || got[0].Age.Round(time.Hour) != 3*time.Hour || got[1].Age != 0 ||
		got[2].Kind != pawl.EventEmptyReceive || got[3].Count != 2 {
		t.Errorf("%+v", got)
	}
}

func TestBy(t *testing.T) {
	t.Parallel()
	groups := adapter.By([]string{"a1", "b1", "a2"}, func(s string) byte { return s[0] })
	if len(groups) != 2 || strings.Join(groups['a'], " ") != "a1 a2" || strings.Join(groups['b'], " ") != "b1" {
		t.Errorf("%v", groups)
	}
}
