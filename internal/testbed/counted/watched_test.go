package counted

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/receipt"
)

// A counter is a source that delivers numbered messages with two ordering keys and counts
// acknowledgements and releases.
type counter struct {
	next        int
	acks, backs int
}

func (c *counter) Receive(_ context.Context, max int) (ds []pawl.Delivery, err error) {
	for range max {
		ds = append(ds, pawl.Delivery{Key: fmt.Sprint("key-", c.next), OrderingKey: fmt.Sprint("lane-", c.next%2), Handle: c.next})
		c.next++
	}
	return ds, nil
}

func (c *counter) Ack(_ context.Context, rs ...pawl.Receipt) error {
	c.acks += len(rs)
	return nil
}

func (c *counter) Release(_ context.Context, _ time.Duration, ds ...pawl.Delivery) error {
	c.backs += len(ds)
	return nil
}

func (c *counter) Info() pawl.SourceInfo { return pawl.SourceInfo{} }

func watchCounter(a assignment) (*counter, *watched, *bytes.Buffer) {
	c, out := &counter{}, &bytes.Buffer{}
	return c, watch(c, a, &journal{out: out}), out
}

func committed(ds []pawl.Delivery) (rs []pawl.Receipt) {
	for _, d := range ds {
		rs = append(rs, receipt.Committed[pawl.Receipt](d.Handle))
	}
	return rs
}

// The journal contains all deliveries, acknowledgements and releases, and all calls reach the
// source.
func TestWatched_RecordsAll(t *testing.T) {
	t.Parallel()
	c, w, out := watchCounter(assignment{})
	ds, err := w.Receive(t.Context(), 4)
	if err != nil || len(ds) != 4 {
		t.Fatal(len(ds), err)
	}
	if w.Ack(t.Context(), committed(ds[:3])...) != nil || w.Release(t.Context(), 0, ds[3]) != nil {
		t.Fatal("not settled")
	}
	if c.acks != 3 || c.backs != 1 {
		t.Errorf("%d acknowledged, %d given back", c.acks, c.backs)
	}
	for what, want := range map[string]int{received: 4, acknowledged: 3, released: 1} {
		if n := strings.Count(out.String(), `"w":"`+what+`"`); n != want {
			t.Errorf("%d %s in the journal, want %d", n, what, want)
		}
	}
}

// If a response is cut off, later deliveries of its lanes are cut off too. A consumer must not get
// a later one without the earlier one.
func TestWatched_CutsLanesOff(t *testing.T) {
	t.Parallel()
	_, w, _ := watchCounter(assignment{LoseReceives: 1})
	if ds, err := w.Receive(t.Context(), 1); len(ds) != 0 || err != nil { // key-0 of lane-0
		t.Fatal(len(ds), err)
	}
	w.LoseReceives = 1e-300 // from now on nothing is lost by chance
	ds, err := w.Receive(t.Context(), 4)
	if err != nil || len(ds) != 2 {
		t.Fatalf("%d deliveries, %v", len(ds), err)
	}
	for _, d := range ds {
		if d.OrderingKey != "lane-1" {
			t.Errorf("%s of %s came through", d.Key, d.OrderingKey)
		}
	}
}

// Each mutant breaks what its name says.
func TestWatched_Mutants(t *testing.T) {
	t.Parallel()
	for mutant, want := range map[string]struct{ acks, backs int }{
		"":          {1, 1},
		AckFirst:    {2, 1}, // both are acknowledged at once, and the receipts do nothing
		AckReleased: {2, 0},
		AckNothing:  {0, 1},
	} {
		c, w, _ := watchCounter(assignment{Mutant: mutant})
		ds, err := w.Receive(t.Context(), 2)
		if err != nil || w.Ack(t.Context(), committed(ds[:1])...) != nil || w.Release(t.Context(), 0, ds[1]) != nil {
			t.Fatal(err)
		}
		if c.acks != want.acks || c.backs != want.backs {
			t.Errorf("%q: %d acknowledged, %d given back, want %v", mutant, c.acks, c.backs, want)
		}
	}
	_, w, _ := watchCounter(assignment{Mutant: FreshKeys})
	if ds, _ := w.Receive(t.Context(), 1); ds[0].Key == "key-0" {
		t.Error("the key is the sender's")
	}
	_, w, _ = watchCounter(assignment{Mutant: NoOrder})
	if ds, _ := w.Receive(t.Context(), 1); ds[0].OrderingKey != "" {
		t.Error("the ordering key is there")
	}
}
