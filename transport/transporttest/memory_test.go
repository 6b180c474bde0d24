package transporttest_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// A kind is the kind of a broker in memory.
type kind int

const (
	unordered kind = iota // like a standard queue of SQS
	ordered               // like a FIFO queue
	log                   // one partition: cumulative receipts, sticky releases, no counts
)

const lease = 300 * time.Millisecond

func memory(mutant string, k kind) transporttest.Broker {
	patience := time.Minute
	if mutant != "" {
		patience = 5 * time.Second
	}
	open := func(t *testing.T) transporttest.Queue {
		q := &queue{mutant: mutant, kind: k}
		return transporttest.Queue{Send: q.send, Source: q.open,
			Abandon:    func(s pawl.Source) { q.give(inner(s), lease) },
			Revoke:     func(s pawl.Source) { q.give(inner(s), 0) },
			Disconnect: func(s pawl.Source) { q.disconnect(inner(s)) },
			Bounce:     q.bounce,
		}
	}
	return transporttest.Broker{Timeout: patience, Quiet: 150 * time.Millisecond, Open: open, Alone: open,
		Features: transporttest.Features{Ordered: k != unordered, Counted: k != log, ReleaseDelay: true, CrashRedelive: true, SentAt: true, Sticky: k == log,
			NoMessageID: k == log, Reconnects: true, Revoked: true, Octets: true, EmptyBodies: true, BinaryAttributes: true, BinaryKeys: k != unordered}}
}

// A queue keeps messages in the order of their sends.
type queue struct {
	mutant string
	kind   kind

	mu       sync.Mutex
	messages []*message
	sent     int
	sources  []*source
	left     int // receivers that left with unsettled deliveries
}

type message struct {
	d       pawl.Delivery
	n       int // position in the order of sends
	holder  *source
	acked   bool      // in a log, while an earlier one is not acknowledged
	visible time.Time // if it has no holder
	only    *source   // in a log: the source that released it
}

// A tag is the handle of a delivery: its number within one connection, as push brokers count.
type tag struct {
	of      *source
	session int
	number  int
	m       *message
}

func (q *queue) broken(mutant string) bool { return q.mutant == mutant }

func (q *queue) open(*testing.T) pawl.Source {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &source{queue: q, tags: map[int]*message{}}
	if q.broken("a newcomer begins at the end") && len(q.sources) > 1 {
		q.messages = slices.DeleteFunc(q.messages, func(m *message) bool { return m.holder == nil })
		q.messages = append(q.messages, &message{d: pawl.Delivery{Key: "begins", OrderingKey: "none"}, holder: s})
	}
	q.sources = append(q.sources, s)
	if q.kind == unordered {
		return plain{s}
	}
	return s
}

// A plain source hides that its inner source is a Finisher and a Revocable.
type plain struct{ pawl.Source }

func inner(s pawl.Source) *source {
	if p, is := s.(plain); is {
		s = p.Source
	}
	return s.(*source)
}

func (q *queue) send(_ context.Context, m transporttest.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sent++
	d := pawl.Delivery{Key: m.Key, OrderingKey: q.keyOf(m), Payload: m.Payload, Attributes: q.attributesOf(m), SentAt: time.Now()}
	if q.kind != log {
		d.MessageID = fmt.Sprint(q.sent)
	}
	switch {
	case q.broken("changes bodies"):
		d.Payload = append(slices.Clone(m.Payload), ' ')
	case q.broken("drops attributes"):
		d.Attributes = nil
	case q.broken("drops ordering keys"):
		d.OrderingKey = ""
	case q.broken("cuts large bodies"):
		d.Payload = m.Payload[:min(len(m.Payload), 1_000_000)]
	case q.broken("stops at a zero"):
		if at := slices.Index(m.Payload, 0); at >= 0 {
			d.Payload = m.Payload[:at]
		}
	case q.broken("drops empty bodies") && len(m.Payload) == 0:
		return nil
	}
	q.messages = append(q.messages, &message{d: d, n: q.sent})
	return nil
}

// keyOf is the ordering key as text.
func (q *queue) keyOf(m transporttest.Message) string {
	switch {
	case q.broken("hands out raw ordering keys"):
		return m.OrderingKey
	case utf8.ValidString(m.OrderingKey) && !slices.Contains([]byte(m.OrderingKey), 0):
		return m.OrderingKey
	case q.broken("mixes up binary ordering keys"):
		return "binary"
	}
	return "hex:" + hex.EncodeToString([]byte(m.OrderingKey))
}

func (q *queue) attributesOf(m transporttest.Message) map[string]string {
	all := map[string]string{}
	for name, value := range m.Attributes {
		if utf8.ValidString(value) || q.broken("takes octets for text") {
			all[name] = value
			continue
		}
		all[name+";base64"] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return all
}

// give takes a source's deliveries, to be handed out again after a while. In a log that includes
// later ones already acknowledged.
func (q *queue) give(s *source, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.take(s, after)
	if after == lease && q.broken("forgets receipts at a crash") {
		for _, m := range s.settled {
			m.holder = nil
			q.messages = append(q.messages, m)
		}
	}
}

func (q *queue) take(s *source, after time.Duration) {
	for _, m := range q.messages {
		if m.holder != s && m.only != s || q.broken("holds for the dead") {
			continue
		}
		m.holder, m.only, m.acked = nil, nil, false
		m.visible = time.Now().Add(after)
	}
}

// disconnect ends the session of a source. Its deliveries come again, and new ones are numbered
// from 1.
func (q *queue) disconnect(s *source) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.take(s, 0)
	s.session, s.tags = s.session+1, map[int]*message{}
	s.dead = q.broken("does not connect again")
}

// bounce ends all sessions.
func (q *queue) bounce() error {
	q.mu.Lock()
	all := slices.Clone(q.sources)
	q.mu.Unlock()
	for _, s := range all {
		q.disconnect(s)
		s.dead = s.dead || q.broken("does not find its broker again")
	}
	return nil
}

// A source is one receiver.
type source struct {
	queue    *queue
	stopped  bool
	finished bool
	dead     bool // it has lost its connection forever
	session  int
	tags     map[int]*message
	settled  []*message
}

var (
	_ pawl.Finisher  = (*source)(nil)
	_ pawl.Revocable = (*source)(nil)
)

func (s *source) Receive(ctx context.Context, limit int) ([]pawl.Delivery, error) {
	for polls := 0; polls < 100 || s.queue.broken("waits for ever"); polls++ {
		if ctx.Err() != nil {
			s.queue.mu.Lock()
			s.stopped = true
			s.queue.mu.Unlock()
			if s.queue.broken("hands out at the stop") {
				s.take(limit)
			}
			return nil, ctx.Err()
		}
		if ds := s.take(limit); len(ds) > 0 {
			return ds, nil
		}
		patience.Elapse(time.Millisecond)
	}
	return nil, nil
}

func (s *source) take(limit int) (ds []pawl.Delivery) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.dead || s.finished {
		return nil
	}
	groupOf := func(m *message) string {
		if q.broken("stands still") {
			return "all"
		}
		return m.d.OrderingKey
	}
	busy := map[string]bool{} // groups that are blocked
	for _, m := range q.messages {
		if m.holder != nil && !m.acked && !q.broken("has no order") {
			busy[groupOf(m)] = true
		}
	}
	for _, m := range q.messages {
		key := groupOf(m)
		free := m.holder == nil && !m.visible.After(time.Now()) && (m.only == nil || m.only == s)
		if free && (key == "" || !busy[key]) && (len(ds) < limit || q.broken("ignores max")) {
			ds = append(ds, s.hold(m))
		} else if !m.acked && !q.broken("overtakes") && !q.broken("has no order") {
			busy[key] = true // blocked by a message whose delay has not passed
		}
	}
	if q.broken("turns groups round") {
		slices.Reverse(ds)
	}
	return ds
}

// hold hands out a message.
func (s *source) hold(m *message) pawl.Delivery {
	if m.d.Receives++; s.queue.broken("does not count") {
		m.d.Receives = 1
	}
	if !s.queue.broken("hides nothing") {
		m.holder = s
	}
	d := m.d
	if s.queue.kind == log {
		d.Receives = 0
	}
	number := len(s.tags) + 1
	s.tags[number] = m
	d.Handle = tag{s, s.session, number, m}
	return d
}

func (s *source) Info() (i pawl.SourceInfo) {
	i.Cumulative = s.queue.kind == log
	switch {
	case s.queue.broken("looks into the past"):
		i.RedeliveryHorizon = -time.Second
	case s.queue.broken("is no evidence"):
		i.EvidenceAttributes = []string{"type"}
	case s.queue.broken("hands out too much"):
		i.ReceiveBatch = 10_001
	}
	return i
}

// StillHeld reports whether the message is still held since this handle was handed out.
func (s *source) StillHeld(d pawl.Delivery) bool {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return s.holds(d.Handle.(tag)) || s.queue.broken("log: holds for ever") || s.queue.broken("hides nothing")
}

func (s *source) holds(t tag) bool {
	return t.m.holder == s && t.session == s.session && s.tags[t.number] == t.m && !s.finished
}

var errFinished = errors.New("the source is finished")

func (s *source) Ack(_ context.Context, rs ...pawl.Receipt) error {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.finished {
		if q.broken("settles after its end") {
			return nil
		}
		return errFinished
	}
	for _, r := range rs {
		t, ours := r.Handle().(tag)
		if !r.Valid() || !ours {
			if q.broken("takes zero receipts") {
				continue
			}
			return errors.New("no receipt of ours")
		}
		s.settle(t)
	}
	return nil
}

func (s *source) settle(t tag) {
	q, m := s.queue, t.m
	switch {
	case q.broken("keeps acknowledged"), s.stopped && q.broken("acknowledges until stop"):
		m.holder = nil
		return
	case q.broken("knows tags without a session"):
		m = s.tags[t.number]
	case q.broken("acknowledges what came before"), q.broken("log: commits the newest"), !s.holds(t) && q.broken("log: commits after a revoke"):
		q.remove(func(other *message) bool { return other.n <= m.n })
		return
	case q.kind == log && !s.holds(t):
		return
	}
	if q.kind != log {
		q.remove(func(other *message) bool { return other == m })
		s.settled = append(s.settled, m)
		return
	}
	m.acked = true
	for len(q.messages) > 0 && q.messages[0].acked { // the offset
		q.messages = q.messages[1:]
	}
}

func (q *queue) remove(which func(*message) bool) { q.messages = slices.DeleteFunc(q.messages, which) }

func (s *source) Release(_ context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.finished {
		if q.broken("gives back after its end") {
			return nil
		}
		return errFinished
	}
	for _, d := range ds {
		t := d.Handle.(tag)
		if !s.holds(t) && !q.broken("hides nothing") {
			continue
		}
		if !q.broken("drops released") {
			t.m.holder = nil
		}
		if q.kind == log {
			t.m.only = s
		}
		if !q.broken("ignores delays") {
			t.m.visible = time.Now().Add(max(delay, 0))
		}
	}
	return nil
}

// Finish gives up all deliveries of the source.
func (s *source) Finish(context.Context) error {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	s.finished = true
	holds := slices.ContainsFunc(q.messages, func(m *message) bool { return m.holder == s })
	if holds {
		q.left++
	}
	if q.broken("strands what it holds") || q.broken("hands out at the stop") {
		return nil
	}
	if q.broken("loses what is left the 7th time") && q.left == 7 {
		q.remove(func(m *message) bool { return m.holder == s })
	}
	q.take(s, 0)
	return nil
}
