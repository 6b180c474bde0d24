package counted

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/receipt"
)

// A watched source records its calls in the journal. It drops deliveries and receipts as the
// assignment says, and plays its mutant.
type watched struct {
	pawl.Source
	assignment
	journal *journal

	mu     sync.Mutex
	random *rand.Rand
	out    map[any]entry   // received and unsettled deliveries, by handle
	lost   map[string]bool // ordering keys with a delivery that was cut off
}

func watch(s pawl.Source, a assignment, j *journal) *watched {
	return &watched{Source: s, assignment: a, journal: j, random: rand.New(rand.NewPCG(a.Seed, uint64(os.Getpid()))), out: map[any]entry{},
		lost: map[string]bool{}}
}

// tell converts a delivery to an entry.
func tell(what string, d pawl.Delivery) entry {
	e := entry{What: what, Key: d.Key, ID: d.MessageID, Receives: d.Receives, Log: d.Log, Offset: d.Offset}
	if len(d.Payload) < 16<<10 {
		if o, err := parse(d.Payload); err == nil {
			e.Key, e.Lane, e.Number = o.Key, o.Lane, o.Number
		}
	}
	return e
}

func (w *watched) Receive(ctx context.Context, max int) ([]pawl.Delivery, error) {
	ds, err := w.Source.Receive(ctx, max)
	if len(ds) == 0 {
		return ds, err
	}
	kept := w.cut(ds)
	entries := make([]entry, len(ds))
	w.mu.Lock()
	for i, d := range ds {
		entries[i] = tell(received, d)
		w.out[d.Handle] = entries[i]
	}
	w.mu.Unlock()
	w.journal.write(entries...)
	if len(kept) < len(ds) {
		w.journal.write(entry{What: cutOff, Count: len(ds) - len(kept)})
	}
	return w.spoil(ctx, kept), err
}

// cut sometimes drops the whole response, like a connection that breaks during the response. The
// source believes that the consumer has it. So no later delivery of the same ordering key may
// arrive until this process ends and the broker redelivers all.
func (w *watched) cut(ds []pawl.Delivery) (kept []pawl.Delivery) {
	if w.LoseReceives == 0 {
		return ds
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.random.Float64() < w.LoseReceives
	for _, d := range ds {
		if all && d.OrderingKey != "" {
			w.lost[d.OrderingKey] = true
		}
		if !all && !w.lost[d.OrderingKey] {
			kept = append(kept, d)
		}
	}
	return kept
}

// spoil applies a mutant to received deliveries.
func (w *watched) spoil(ctx context.Context, ds []pawl.Delivery) []pawl.Delivery {
	switch w.Mutant {
	case AckFirst:
		if _, asks := w.Source.(pawl.Revocable); !asks { // else it would drop the deliveries
			w.ackUncommitted(ctx, ds)
		}
	case FreshKeys:
		for i := range ds {
			ds[i].Key = fmt.Sprintf("%s/%d", ds[i].Key, rand.Uint64())
		}
	case NoOrder:
		for i := range ds {
			ds[i].OrderingKey = ""
		}
	}
	return ds
}

// ackUncommitted creates receipts without a commit. Only a mutant may do that.
func (w *watched) ackUncommitted(ctx context.Context, ds []pawl.Delivery) {
	rs := make([]pawl.Receipt, len(ds))
	for i, d := range ds {
		rs[i] = receipt.Committed[pawl.Receipt](d.Handle)
	}
	_ = w.Source.Ack(ctx, rs...)
}

func (w *watched) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	switch {
	case w.Mutant == AckFirst:
		return nil
	case w.Mutant == AckNothing || w.losesAck():
		w.settled(swallowed, handlesOf(rs))
		return nil
	}
	err := w.Source.Ack(ctx, rs...)
	if err == nil {
		w.settled(acknowledged, handlesOf(rs))
	}
	return err
}

func (w *watched) losesAck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.LoseAcks > 0 && w.random.Float64() < w.LoseAcks
}

func (w *watched) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	if w.Mutant == AckReleased {
		w.ackUncommitted(ctx, ds)
		return nil
	}
	err := w.Source.Release(ctx, delay, ds...)
	if err == nil {
		handles := make([]any, len(ds))
		for i, d := range ds {
			handles[i] = d.Handle
		}
		w.settled(released, handles)
	}
	return err
}

func handlesOf(rs []pawl.Receipt) []any {
	handles := make([]any, len(rs))
	for i, r := range rs {
		handles[i] = r.Handle()
	}
	return handles
}

// settled records the outcome of deliveries.
func (w *watched) settled(what string, handles []any) {
	entries := make([]entry, 0, len(handles))
	w.mu.Lock()
	for _, h := range handles {
		e, known := w.out[h]
		if known {
			delete(w.out, h)
			e.What = what
			entries = append(entries, e)
		}
	}
	w.mu.Unlock()
	w.journal.write(entries...)
}

// Finish and StillHeld call the source's methods if it has them.

func (w *watched) Finish(ctx context.Context) error {
	if f, ok := w.Source.(pawl.Finisher); ok {
		return f.Finish(ctx)
	}
	return nil
}

func (w *watched) Identify(d pawl.Delivery) pawl.Delivery {
	if i, ok := w.Source.(pawl.Identifier); ok {
		return i.Identify(d)
	}
	return d
}

func (w *watched) StillHeld(d pawl.Delivery) bool {
	r, ok := w.Source.(pawl.Revocable)
	if !ok {
		return true
	}
	held := r.StillHeld(d)
	if held && w.Mutant == AckFirst {
		w.ackUncommitted(context.Background(), []pawl.Delivery{d})
	}
	return held
}
