package transporttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/receipt"
)

func receipts(ds ...pawl.Delivery) []pawl.Receipt {
	rs := make([]pawl.Receipt, len(ds))
	for i, d := range ds {
		rs[i] = receipt.Committed[pawl.Receipt](d.Handle)
	}
	return rs
}

// forget unregisters deliveries, so that they are not released after the test.
func (b *bench) forget(ds ...pawl.Delivery) {
	for _, d := range ds {
		delete(b.out, d.Handle)
	}
}

func byKey(ds []pawl.Delivery) []pawl.Delivery {
	slices.SortFunc(ds, func(a, b pawl.Delivery) int { return strings.Compare(a.Key, b.Key) })
	return ds
}

// gather receives from the sources in turn until each key in want has come. It returns the first
// delivery of each key. Other keys may come too.
func (b *bench) gather(want []string, from ...pawl.Source) map[string]pawl.Delivery {
	b.Helper()
	got := map[string]pawl.Delivery{}
	ctx, cancel := context.WithTimeout(b.Context(), b.Timeout)
	defer cancel()
	missing := func() (m []string) {
		return slices.DeleteFunc(slices.Clone(want), func(k string) bool { return got[k].Handle != nil })
	}
	for turn := 0; len(missing()) > 0; turn++ {
		s := from[turn%len(from)]
		ds, err := s.Receive(ctx, 10)
		if ctx.Err() != nil {
			b.Fatalf("in %v did not come: %v (%v)", b.Timeout, missing(), err)
		}
		if err != nil {
			time.Sleep(pause)
		}
		for _, d := range b.took(s, ds) {
			if got[d.Key].Handle == nil {
				got[d.Key] = d
			}
		}
	}
	return got
}

// A leaving receiver's unsettled deliveries go to others. For a Finisher that is after Finish, else
// when they are released. Acknowledged deliveries do not come again, unless receipts are cumulative
// and an earlier one is missing. After Finish, a source refuses receipts and releases.
func stopHandsOver(b *bench) {
	b.send("1", "2", "3")
	ds := byKey(b.get(b.source, 3))
	b.stop(b.source)
	b.ack(b.source, ds[1])
	_, owns := b.source.(pawl.Finisher)
	if owns {
		b.forget(ds...) // left behind
	} else {
		b.release(b.source, 0, ds[0], ds[2])
	}
	b.finish(b.source)
	if owns && b.source.Ack(b.Context(), receipts(ds[0])...) == nil {
		b.Error("a receipt was taken after Finish")
	}
	if owns && b.source.Release(b.Context(), 0, ds[2]) == nil {
		b.Error("a delivery was given back after Finish")
	}
	if r, may := b.source.(pawl.Revocable); may && r.StillHeld(ds[0]) {
		b.Error("a delivery is held after Finish")
	}
	b.onlyUnsettled(b.another())
}

// onlyUnsettled receives 1 and 3 of three deliveries, of which 2 was acknowledged.
func (b *bench) onlyUnsettled(other pawl.Source) {
	b.Helper()
	got := b.gather([]string{"1", "3"}, other)
	if b.source.Info().Cumulative {
		return
	}
	if _, again := got["2"]; again {
		b.Error("2 came again after it was acknowledged")
	}
	b.none(other)
}

// A receiver dies after it acknowledged the second of three deliveries. The first and the third
// come again.
func partly(b *bench) {
	b.send("1", "2", "3")
	ds := byKey(b.get(b.source, 3))
	b.ack(b.source, ds[1])
	b.forget(ds...)
	b.abandon(b.source)
	b.onlyUnsettled(b.another())
}

// A handle of a lost connection removes no message but its own. Some brokers number deliveries per
// connection and start again with the next one.
func oldHandles(b *bench) {
	settled, old, fresh := []string{"a1", "a2", "a3"}, []string{"b1", "b2", "b3"}, []string{"c1", "c2", "c3"}
	b.send(append(slices.Clone(settled), old...)...)
	ds := byKey(b.get(b.source, 6))
	b.ack(b.source, ds[:3]...)
	b.forget(ds...)
	b.queue.Disconnect(b.source)
	b.send(fresh...)
	got := b.gather(fresh, b.source)
	for _, d := range ds[3:] {
		// may be refused: the delivery was lost with its connection
		_ = b.source.Ack(b.Context(), receipts(d)...)
	}
	var back []pawl.Delivery
	for _, key := range fresh {
		back = append(back, got[key])
	}
	for _, d := range got {
		b.forget(d)
		if !slices.Contains(fresh, d.Key) {
			_ = b.source.Release(b.Context(), 0, d)
		}
	}
	b.release(b.source, 0, back...)
	b.gather(fresh, b.next(b.source))
}

// A receipt for a revoked delivery removes at most that one. In a log it must not move the offset
// past earlier ones.
func lateReceipt(b *bench) {
	b.send("1", "2", "3")
	ds := byKey(b.waiting(b.source, 3))
	begun(b.source, []pawl.Delivery{ds[0], ds[2]})
	b.queue.Revoke(b.source)
	other := b.another()
	b.gather([]string{"1", "2", "3"}, other, b.source)
	if r, may := b.source.(pawl.Revocable); may && r.StillHeld(ds[1]) {
		b.Error("what was taken away is still held")
	}
	_ = b.source.Ack(b.Context(), receipts(ds[2])...) // may be refused
	clear(b.out)                                      // left behind
	b.abandon(other)
	b.abandon(b.source)
	b.gather([]string{"1", "2"}, b.another())
}

const (
	visits  = 20 // of other receivers, beside one that stays
	atVisit = 10 // messages sent during a visit
)

// Receivers come and go beside one that stays, while messages are sent. Each message arrives. Each
// leaving receiver has acknowledged half of its deliveries.
func comeAndGo(b *bench) {
	arrived := arrivals{keys: map[string]bool{}}
	staying, leave := context.WithCancel(b.Context())
	var stayed sync.WaitGroup
	stayed.Go(func() {
		for staying.Err() == nil {
			ds, err := b.source.Receive(staying, 5)
			if err != nil {
				time.Sleep(pause)
			}
			arrived.settle(b, b.source, begun(b.source, ds))
		}
	})
	defer stayed.Wait()
	defer leave()
	var sent []string
	for visit := range visits {
		guest := b.another()
		for n := range atVisit {
			sent = append(sent, fmt.Sprintf("key-%02d-%d", visit, n))
		}
		b.send(sent[len(sent)-atVisit:]...)
		ds, err := guest.Receive(b.Context(), 5)
		if err != nil {
			b.Fatalf("visit %d: %v", visit, err)
		}
		ds = begun(guest, ds)
		half := (len(ds) + 1) / 2
		arrived.settle(b, guest, ds[:half])
		b.stop(guest)
		if _, owns := guest.(pawl.Finisher); !owns && len(ds) > half {
			b.must(guest.Release(b.Context(), 0, ds[half:]...))
		}
		b.finish(guest)
	}
	for deadline := time.Now().Add(b.Timeout); ; time.Sleep(pause) {
		missing := arrived.missing(sent)
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("of %d messages did not come in %v: %v", len(sent), b.Timeout, missing)
		}
	}
}

const pause = 5 * time.Millisecond

// arrivals are the keys that were received and acknowledged by any receiver.
type arrivals struct {
	mu   sync.Mutex
	keys map[string]bool
}

// settle acknowledges deliveries. If that fails, they come again.
func (a *arrivals) settle(b *bench, s pawl.Source, ds []pawl.Delivery) {
	if len(ds) == 0 {
		return
	}
	a.mu.Lock()
	for _, d := range ds {
		a.keys[d.Key] = true
	}
	a.mu.Unlock()
	if err := s.Ack(context.WithoutCancel(b.Context()), receipts(ds...)...); err != nil {
		b.Logf("acknowledge %v: %v", keys(ds), err)
	}
}

func (a *arrivals) missing(all []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(all), func(k string) bool { return a.keys[k] })
}

// After its broker was killed and restarted, a source receives again by itself: unsettled messages
// and new ones.
func bounced(b *bench) {
	b.has("Bounce", true, b.queue.Bounce != nil)
	b.send("1", "2")
	ds := byKey(b.get(b.source, 2))
	b.ack(b.source, ds[0])
	b.forget(ds[1])
	ctx, cancel := context.WithTimeout(b.Context(), b.Timeout)
	defer cancel()
	meanwhile := make(chan []pawl.Delivery, 1)
	go func() {
		ds, _ := b.source.Receive(ctx, 10) // as a consumer does all the time
		meanwhile <- ds
	}()
	b.must(b.queue.Bounce())
	// may be refused: it was lost with the connection and comes again by itself
	_ = b.source.Release(b.Context(), 0, ds[1])
	early := <-meanwhile
	b.sendAgain(ctx, "3")
	for _, d := range b.took(b.source, early) {
		b.release(b.source, 0, d)
	}
	b.gather([]string{"2", "3"}, b.source)
}

func (b *bench) sendAgain(ctx context.Context, key string) {
	b.Helper()
	for {
		err := b.queue.Send(ctx, b.message(key, []byte("body of "+key)))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			b.Fatalf("the broker takes nothing: %v", err)
		}
		time.Sleep(pause)
	}
}
