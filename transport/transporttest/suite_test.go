package transporttest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// A broker in memory shows that the suite can be passed, and, with one thing broken at a time, that it cannot be passed by a
// source that breaks it.

func TestMemory_Unordered(t *testing.T) { transporttest.Run(t, memory("", false)) }
func TestMemory_Ordered(t *testing.T)   { transporttest.Run(t, memory("", true)) }

// mutantEnv names what is broken, in the process that runs the suite on it.
const mutantEnv = "PAWL_TEST_MUTANT"

// TestMutantProcess is no test: it is the suite on a broken broker, which must fail.
func TestMutantProcess(t *testing.T) {
	if mutant := os.Getenv(mutantEnv); mutant != "" {
		transporttest.Run(t, memory(mutant, true))
	}
}

func TestSuite_NoticesEachMutant(t *testing.T) {
	t.Parallel()
	for mutant, noticed := range map[string]string{
		"changes bodies":          "Content",
		"drops attributes":        "Content",
		"drops ordering keys":     "Content",
		"looks into the past":     "InfoHoldsTogether",
		"is no evidence":          "InfoHoldsTogether",
		"waits for ever":          "EmptyQueueReturns",
		"ignores max":             "MaxIsKept",
		"keeps acknowledged":      "AcknowledgedStaysAway",
		"takes zero receipts":     "ZeroReceiptIsRefused",
		"hides nothing":           "HeldIsHidden",
		"drops released":          "ReleasedComesAgain",
		"hands out at the stop":   "StopStrandsNothing",
		"does not count":          "ReceivesAreCounted",
		"ignores delays":          "ReleaseDelayIsKept",
		"holds for the dead":      "CrashRedelivers",
		"has no order":            "GroupInOrder",
		"turns groups round":      "GroupInOrder",
		"stands still":            "GroupsGoSideBySide",
		"overtakes":               "ReleasedHeadIsNotOvertaken",
		"acknowledges until stop": "AcknowledgeAfterStop",
	} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run", "^TestMutantProcess$/^"+noticed+"$", "-test.timeout", "1m", "-test.v")
			cmd.Env = append(os.Environ(), mutantEnv+"="+mutant)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestMutantProcess/"+noticed) {
				t.Errorf("%s lets it pass: %v\n%s", noticed, err, out)
			}
		})
	}
}

const lease = 300 * time.Millisecond

func memory(mutant string, ordered bool) transporttest.Broker {
	patience := 10 * time.Second
	if mutant != "" {
		patience = 2500 * time.Millisecond
	}
	return transporttest.Broker{Timeout: patience, Quiet: 150 * time.Millisecond,
		Features: transporttest.Features{Ordered: ordered, Counted: true, ReleaseDelay: true, CrashRedelive: true, SentAt: true},
		Open: func(t *testing.T) transporttest.Queue {
			q := &queue{mutant: mutant}
			return transporttest.Queue{Send: q.send, Source: func(*testing.T) pawl.Source { return &source{queue: q} },
				Abandon: func(s pawl.Source) { q.abandon(s.(*source)) }}
		}}
}

// A queue keeps messages in the order of their sends.
type queue struct {
	mutant string

	mu       sync.Mutex
	messages []*message
	sent     int
}

type message struct {
	d       pawl.Delivery
	holder  *source
	visible time.Time // when nobody holds it
}

func (q *queue) broken(mutant string) bool { return q.mutant == mutant }

func (q *queue) send(_ context.Context, m transporttest.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sent++
	d := pawl.Delivery{Key: m.Key, OrderingKey: m.OrderingKey, Payload: m.Payload, Attributes: m.Attributes, MessageID: fmt.Sprint(q.sent), SentAt: time.Now()}
	switch {
	case q.broken("changes bodies"):
		d.Payload = append(slices.Clone(m.Payload), ' ')
	case q.broken("drops attributes"):
		d.Attributes = nil
	case q.broken("drops ordering keys"):
		d.OrderingKey = ""
	}
	one := &message{d: d}
	one.d.Handle = one
	q.messages = append(q.messages, one)
	return nil
}

func (q *queue) abandon(s *source) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.messages {
		if m.holder == s && !q.broken("holds for the dead") {
			m.holder, m.visible = nil, time.Now().Add(lease)
		}
	}
}

// A source is one receiver.
type source struct {
	queue   *queue
	stopped bool
}

func (s *source) Receive(ctx context.Context, limit int) ([]pawl.Delivery, error) {
	for waited := time.Now(); time.Since(waited) < 100*time.Millisecond || s.queue.broken("waits for ever"); time.Sleep(time.Millisecond) {
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
	}
	return nil, nil
}

func (s *source) take(limit int) (ds []pawl.Delivery) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	groupOf := func(m *message) string {
		if q.broken("stands still") {
			return "all"
		}
		return m.d.OrderingKey
	}
	busy := map[string]bool{} // groups of which nothing may be handed out
	for _, m := range q.messages {
		if m.holder != nil && !q.broken("has no order") {
			busy[groupOf(m)] = true
		}
	}
	for _, m := range q.messages {
		key := groupOf(m)
		free := m.holder == nil && !m.visible.After(time.Now())
		if free && (key == "" || !busy[key]) && (len(ds) < limit || q.broken("ignores max")) {
			if m.d.Receives++; q.broken("does not count") {
				m.d.Receives = 1
			}
			if !q.broken("hides nothing") {
				m.holder = s
			}
			ds = append(ds, m.d)
		} else if !q.broken("overtakes") && !q.broken("has no order") {
			busy[key] = true // by one whose delay is not over
		}
	}
	if q.broken("turns groups round") {
		slices.Reverse(ds)
	}
	return ds
}

func (s *source) Info() (i pawl.SourceInfo) {
	if s.queue.broken("looks into the past") {
		i.RedeliveryHorizon = -time.Second
	}
	if s.queue.broken("is no evidence") {
		i.EvidenceAttributes = []string{"type"}
	}
	return i
}

func (s *source) Ack(_ context.Context, rs ...pawl.Receipt) error {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	for _, r := range rs {
		switch m, ours := r.Handle().(*message); {
		case !r.Valid() || !ours:
			if !s.queue.broken("takes zero receipts") {
				return errors.New("no receipt of ours")
			}
		case s.queue.broken("keeps acknowledged"), s.stopped && s.queue.broken("acknowledges until stop"):
			m.holder = nil
		default:
			s.queue.messages = slices.DeleteFunc(s.queue.messages, func(other *message) bool { return other == m })
		}
	}
	return nil
}

func (s *source) Release(_ context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	for _, d := range ds {
		m := d.Handle.(*message)
		if !s.queue.broken("drops released") {
			m.holder = nil
		}
		if !s.queue.broken("ignores delays") {
			m.visible = time.Now().Add(max(delay, 0))
		}
	}
	return nil
}
