package consumer_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// A member is a source with a membership, whose broker may take deliveries back. It records its
// calls.
type member struct {
	*pawltest.Source
	info    pawl.SourceInfo
	revoked func(pawl.Delivery) bool // nil: no delivery is
	failure error                    // of Finish
	slow    time.Duration            // of each Ack

	mu       sync.Mutex
	asked    map[string]int // calls of StillHeld, by message and receive
	lost     map[string]bool
	settled  map[string]bool // acknowledged or released
	latest   map[any]string  // arrival of each handle
	touched  []string        // lost deliveries that were acknowledged or released nevertheless
	finished int
	late     []string // calls of Ack and Release that began after Finish
	running  int      // open calls of Ack and Release
	beside   int      // calls that ran when Finish was called
	most     []int    // requested in each Receive
	acks     []int    // receipts in one call
}

func (b *bed) member() *member {
	m := &member{Source: b.source, asked: map[string]int{}, lost: map[string]bool{}, settled: map[string]bool{}, latest: map[any]string{}}
	b.config.Source = m
	return m
}

func arrival(d pawl.Delivery) string { return fmt.Sprint(d.MessageID, " the ", d.Receives) }

func (m *member) Info() pawl.SourceInfo { return m.info }

func (m *member) Receive(ctx context.Context, limit int) ([]pawl.Delivery, error) {
	m.mu.Lock()
	m.most = append(m.most, limit)
	m.mu.Unlock()
	ds, err := m.Source.Receive(ctx, limit)
	m.mu.Lock()
	for _, d := range ds {
		m.latest[d.Handle] = arrival(d)
	}
	m.mu.Unlock()
	return ds, err
}

func (m *member) StillHeld(d pawl.Delivery) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked[arrival(d)]++
	if m.revoked != nil && m.revoked(d) {
		m.lost[arrival(d)] = true
		_ = m.Source.Release(context.Background(), 0, d) // the broker delivers it again
		return false
	}
	return true
}

// begin records the start of a call, and returns a function that records its end.
func (m *member) begin(call string, handles ...any) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.finished > 0 {
		m.late = append(m.late, call)
	}
	for _, h := range handles {
		m.settled[m.latest[h]] = true
		if m.lost[m.latest[h]] {
			m.touched = append(m.touched, call+" "+m.latest[h])
		}
	}
	if call == "ack" {
		m.acks = append(m.acks, len(handles))
	}
	m.running++
	return func() {
		m.mu.Lock()
		m.running--
		m.mu.Unlock()
	}
}

func (m *member) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	handles := make([]any, len(rs))
	for i, r := range rs {
		handles[i] = r.Handle()
	}
	defer m.begin("ack", handles...)()
	patience.Elapse(m.slow)
	return m.Source.Ack(ctx, rs...)
}

func (m *member) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	handles := make([]any, len(ds))
	for i, d := range ds {
		handles[i] = d.Handle
	}
	defer m.begin("release", handles...)()
	return m.Source.Release(ctx, delay, ds...)
}

func (m *member) Finish(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finished++
	m.beside += m.running
	return m.failure
}

// noted returns a snapshot of the records.
func (m *member) noted() (n struct {
	finished, beside int
	late, touched    []string
	asked            map[string]int
	most, acks       []int
	left             []string // started, and neither acknowledged nor released
}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n.finished, n.beside, n.late, n.touched = m.finished, m.beside, slices.Clone(m.late), slices.Clone(m.touched)
	n.asked, n.most, n.acks = maps.Clone(m.asked), slices.Clone(m.most), slices.Clone(m.acks)
	for a := range m.asked {
		if !m.lost[a] && !m.settled[a] {
			n.left = append(n.left, a)
		}
	}
	return n
}
