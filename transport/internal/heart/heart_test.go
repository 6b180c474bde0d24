package heart

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A lender lends things and takes them back when their lease ends.
type lender struct {
	lease  time.Duration
	ends   map[string]time.Time
	fails  func(key string, call int) Extension
	calls  int
	most   int // of one call
	taken  []string
	before func()
}

func (l *lender) extend(_ context.Context, beats []Beat[string]) []Extension {
	outcomes := make([]Extension, len(beats))
	l.calls++
	l.most = max(l.most, len(beats))
	if l.before != nil {
		l.before()
	}
	for i, b := range beats {
		if l.fails != nil {
			outcomes[i] = l.fails(b.Key, l.calls)
		}
		if outcomes[i] == (Extension{}) {
			if time.Now().After(l.ends[b.Key]) {
				l.taken = append(l.taken, b.Key)
			}
			l.ends[b.Key] = time.Now().Add(min(l.lease, b.Left))
		}
	}
	return outcomes
}

func (l *lender) lend(h *Heart[string], until time.Time, keys ...string) {
	for _, key := range keys {
		l.ends[key] = time.Now().Add(l.lease)
		h.Hold(key, until)
	}
}

func borrow(l *lender, batch int) (h *Heart[string], extended, lost *int) {
	extended, lost = new(int), new(int)
	l.ends = map[string]time.Time{}
	h = New(Config[string]{Lease: l.lease, Batch: batch, CallTimeout: 10 * time.Second, Extend: l.extend,
		Extended: func(n int) { *extended += n }, Lost: func(n int) { *lost += n + 0*h.Count() }})
	return h, extended, lost
}

// Held things are extended before their lease ends, in batches of the configured size, until they
// are released. Then no goroutine runs.
func TestHeart_HoldsUntilLetGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lender{lease: 30 * time.Second}
		h, extended, lost := borrow(l, 10)
		var keys []string
		for n := range 35 {
			keys = append(keys, fmt.Sprint(n))
		}
		l.lend(h, time.Time{}, keys...)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(l.taken) > 0 || *lost > 0 || h.Count() != 35 || *extended < 35*350 || l.most != 10 {
			t.Fatalf("taken %v, lost %d, held %d, extended %d, %d in one call", l.taken, *lost, h.Count(), *extended, l.most)
		}
		if !h.Holds("7") {
			t.Error("7 is not held")
		}
		h.LetGo(keys)
		synctest.Wait()
		if before := *extended; h.Count() != 0 || h.Holds("7") {
			t.Fatalf("%d are held", h.Count())
		} else if time.Sleep(time.Hour); *extended != before {
			t.Errorf("%d extensions after all were let go", *extended-before)
		}
	})
}

// After two failures in a row there is time for a third try, so nothing is lost.
func TestHeart_SurvivesTwoFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lender{lease: 30 * time.Second, fails: func(_ string, call int) Extension { return Extension{Failed: call%3 != 0} }}
		h, _, lost := borrow(l, 10)
		l.lend(h, time.Time{}, "a", "b")
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(l.taken) > 0 || *lost > 0 || l.calls < 300 {
			t.Errorf("taken %v, lost %d, %d calls", l.taken, *lost, l.calls)
		}
		h.LetGo([]string{"a", "b"})
	})
}

// A loss is reported once, and the thing is not extended again. Other things are kept.
func TestHeart_ReportsLosses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lender{lease: 30 * time.Second, fails: func(key string, _ int) Extension { return Extension{Lost: key == "a"} }}
		h, _, lost := borrow(l, 10)
		l.lend(h, time.Time{}, "a", "b")
		time.Sleep(time.Minute)
		synctest.Wait()
		if *lost != 1 || h.Holds("a") || !h.Holds("b") {
			t.Errorf("lost %d, holds a %v, b %v", *lost, h.Holds("a"), h.Holds("b"))
		}
		h.LetGo([]string{"b"})
	})
}

// Things are released when their limit is reached, at most a second before it. Left never exceeds
// the limit.
func TestHeart_KeepsTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lender{lease: 30 * time.Second}
		h, _, lost := borrow(l, 10)
		limit := time.Now().Add(10 * time.Minute)
		l.lend(h, limit, "a")
		time.Sleep(10*time.Minute - 2*time.Second)
		synctest.Wait()
		if !h.Holds("a") || l.ends["a"].After(limit) {
			t.Errorf("held %v, until %v past the limit", h.Holds("a"), l.ends["a"].Sub(limit))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if h.Count() != 0 || *lost != 1 {
			t.Errorf("held %d, lost %d", h.Count(), *lost)
		}
	})
}

// If an extension of a key is running, LetGo returns a channel that closes when it ends. Otherwise
// it returns nil.
func TestHeart_LetGoWaitsForTheRunningCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		l := &lender{lease: 30 * time.Second}
		l.before = func() { <-release }
		h, extended, _ := borrow(l, 1)
		l.lend(h, time.Time{}, "a")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if h.LetGo([]string{"other"}) != nil {
			t.Error("the call is not about it")
		}
		stored := h.LetGo([]string{"a"})
		if stored == nil {
			t.Fatal("the call under way is not told")
		}
		select {
		case <-stored:
			t.Error("told before the call was over")
		default:
		}
		close(release)
		<-stored
		synctest.Wait()
		if *extended != 0 {
			t.Errorf("%d extended that were let go", *extended)
		}
	})
}
