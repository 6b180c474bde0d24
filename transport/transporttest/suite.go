package transporttest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
)

// Run tests a broker. Each promise is a subtest.
func Run(t *testing.T, b Broker) {
	t.Helper()
	b.Timeout, b.Quiet, b.MostBody = cmp.Or(b.Timeout, 30*time.Second), cmp.Or(b.Quiet, 500*time.Millisecond), cmp.Or(b.MostBody, 1<<20)
	for _, s := range suite {
		if s.needs == nil || s.needs(b.Features) {
			t.Run(s.name, func(t *testing.T) { s.test(b.bench(t, b.Open)) })
		}
	}
	if b.Alone != nil {
		t.Run("ReceivesAfterABounce", func(t *testing.T) { bounced(b.bench(t, b.Alone)) })
	}
}

var suite = []struct {
	name  string
	needs func(Features) bool // nil: every broker
	test  func(*bench)
}{
	{"Content", nil, content},
	{"InfoHoldsTogether", nil, info},
	{"EmptyQueueReturns", nil, emptyQueue},
	{"MaxIsKept", nil, maxIsKept},
	{"AcknowledgedStaysAway", nil, acknowledged},
	{"ZeroReceiptIsRefused", nil, zeroReceipt},
	{"HeldIsHidden", nil, hidden},
	{"ReleasedComesAgain", nil, released},
	{"AllArrive", nil, allArrive},
	{"StopStrandsNothing", nil, stopStrandsNothing},
	{"AcknowledgeAfterStop", nil, acknowledgeAfterStop},
	{"ReceivesAreCounted", func(f Features) bool { return f.Counted }, counted},
	{"ReleaseDelayIsKept", func(f Features) bool { return f.ReleaseDelay }, releaseDelay},
	{"CrashRedelivers", func(f Features) bool { return f.CrashRedelive }, crash},
	{"GroupInOrder", func(f Features) bool { return f.Ordered }, inOrder},
	{"GroupsGoSideBySide", func(f Features) bool { return f.Ordered && !f.narrow() }, sideBySide},
	{"ReleasedHeadIsNotOvertaken", func(f Features) bool { return f.Ordered }, headReleased},
	{"OrderHoldsBetweenReceivers", func(f Features) bool { return f.Ordered }, twoReceivers},
	{"GroupGoesOnAfterAStop", func(f Features) bool { return f.Ordered }, stopInAGroup},
	{"LargeBody", nil, largeBody},
	{"AnyOctets", func(f Features) bool { return f.Octets }, anyOctets},
	{"EmptyBody", func(f Features) bool { return f.EmptyBodies }, emptyBody},
	{"BinaryAttributes", func(f Features) bool { return f.BinaryAttributes }, binaryAttributes},
	{"BinaryOrderingKeys", func(f Features) bool { return f.Ordered && f.BinaryKeys }, binaryKeys},
	{"StopHandsOver", func(f Features) bool { return !f.Single }, stopHandsOver},
	{"PartlyAcknowledged", func(f Features) bool { return f.CrashRedelive && !f.Single }, partly},
	{"OldHandlesRemoveNothingElse", func(f Features) bool { return f.Reconnects && !f.narrow() }, oldHandles},
	{"LateReceiptSkipsNothing", func(f Features) bool { return f.Revoked && !f.Single }, lateReceipt},
	{"ReceiversComeAndGo", nil, comeAndGo},
}

// A message arrives with its key, its exact octets and its attributes.
func content(b *bench) {
	body := []byte("{\"name\":\"w\u00f6rld \U0001F600\"}\n")
	m := Message{Key: "key-1", Payload: body, Attributes: map[string]string{"type": "order.placed"}}
	if b.Features.Ordered {
		m.OrderingKey = "account-7"
	}
	b.must(b.queue.Send(b.Context(), m))
	d := b.one(b.source)
	if d.Key != m.Key || !bytes.Equal(d.Payload, body) || d.Attributes["type"] != "order.placed" || d.MessageID == "" && !b.Features.NoMessageID || d.Handle == nil {
		b.Errorf("received %+v", d)
	}
	if d.OrderingKey != m.OrderingKey {
		b.Errorf("the ordering key is %q, want %q", d.OrderingKey, m.OrderingKey)
	}
	if b.Features.SentAt && time.Since(d.SentAt).Abs() > time.Minute {
		b.Errorf("sent at %v", d.SentAt)
	}
	b.ack(b.source, d)
}

// SourceInfo is valid: the horizon is not negative, evidence attributes are named only with
// Evidence, and sizes are within bounds.
func info(b *bench) {
	i := b.source.Info()
	if i.RedeliveryHorizon < 0 {
		b.Errorf("the RedeliveryHorizon is %v", i.RedeliveryHorizon)
	}
	if !i.Evidence && len(i.EvidenceAttributes) > 0 {
		b.Errorf("it names the EvidenceAttributes %q, and its deliveries are no evidence", i.EvidenceAttributes)
	}
	for name, size := range map[string]int{"ReceiveBatch": i.ReceiveBatch, "AckBatch": i.AckBatch} {
		if size < 0 || size > 10_000 {
			b.Errorf("the %s is %d", name, size)
		}
	}
}

// Receive on an empty queue returns without an error, so that a receiver does not wait forever.
func emptyQueue(b *bench) {
	ctx, cancel := context.WithTimeout(b.Context(), b.Timeout)
	defer cancel()
	ds, err := b.source.Receive(ctx, 10)
	if len(ds) > 0 || err != nil {
		b.Errorf("received %v, %v", keys(ds), err)
	}
}

func maxIsKept(b *bench) {
	b.send(numbered(5)...)
	for n := 0; n < 5; {
		ds, err := b.source.Receive(b.Context(), 2)
		b.must(err)
		if len(ds) > 2 {
			b.Fatalf("received %d, allowed were 2", len(ds))
		}
		ds = b.took(b.source, ds)
		n += len(ds)
		b.ack(b.source, ds...)
	}
}

func acknowledged(b *bench) {
	b.send("a")
	b.ack(b.source, b.one(b.source))
	b.none(b.source)
	b.none(b.another())
}

// A receipt without a commit acknowledges nothing.
func zeroReceipt(b *bench) {
	b.send("a")
	d := b.one(b.source)
	if err := b.source.Ack(b.Context(), pawl.Receipt{}); err == nil {
		b.Error("the zero receipt was taken")
	}
	b.release(b.source, 0, d)
	b.wantKey(b.one(b.next(b.source)), "a")
}

// Held deliveries are not handed out to others.
func hidden(b *bench) {
	b.send("a")
	d := b.one(b.source)
	b.none(b.another())
	b.ack(b.source, d)
}

func released(b *bench) {
	b.send("a")
	b.release(b.source, 0, b.one(b.source))
	b.wantKey(b.one(b.next(b.source)), "a")
}

// Three receivers get all of sixty messages. On a slow machine a broker may redeliver one before it
// is acknowledged.
func allArrive(b *bench) {
	want := numbered(60)
	b.send(want...)
	got := map[string]bool{}
	sources := []pawl.Source{b.source, b.another(), b.another()}
	ctx, cancel := context.WithTimeout(b.Context(), b.Timeout)
	defer cancel()
	for i := 0; len(got) < len(want); i++ {
		s := sources[i%len(sources)]
		ds, err := s.Receive(ctx, 10)
		if err != nil {
			b.Fatalf("received %d of %d: %v", len(got), len(want), err)
		}
		ds = b.took(s, ds)
		for _, k := range keys(ds) {
			got[k] = true
		}
		b.ack(s, ds...)
	}
	if received := slices.Sorted(maps.Keys(got)); !slices.Equal(received, want) {
		b.Errorf("received %v", received)
	}
}

// A receiver that is stopped during a Receive leaves no message hidden. Messages sent right after
// go to others.
func stopStrandsNothing(b *bench) {
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() {
		ds, err := b.source.Receive(ctx, 10)
		if len(ds) > 0 { // it came before the end: release it, as a consumer does
			err = b.source.Release(context.WithoutCancel(ctx), 0, ds...)
		}
		ended <- err
	}()
	time.AfterFunc(50*time.Millisecond, cancel)
	b.send("a", "b", "c")
	<-ended
	b.stop(b.source)
	b.finish(b.source)
	var got []string
	for other := b.another(); len(got) < 3; {
		ds := b.some(other, 3)
		got = append(got, keys(ds)...)
		b.ack(other, ds...)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		b.Errorf("received %v", got)
	}
}

// A delivery that a handler finishes during a drain is still acknowledged.
func acknowledgeAfterStop(b *bench) {
	b.send("a")
	d := b.one(b.source)
	b.stop(b.source)
	b.ack(b.source, d)
	b.finish(b.source)
	b.none(b.another())
}

func counted(b *bench) {
	b.send("a")
	for n := 1; n <= 3; n++ {
		d := b.one(b.source)
		if d.Receives != n {
			b.Fatalf("receive %d is counted as %d", n, d.Receives)
		}
		b.release(b.source, 0, d)
	}
}

func releaseDelay(b *bench) {
	const delay = 2 * time.Second
	b.send("a")
	d := b.one(b.source)
	start := time.Now()
	b.release(b.source, delay, d)
	b.wantKey(b.one(b.source), "a")
	if took := time.Since(start); took < delay-100*time.Millisecond {
		b.Errorf("came back after %v, want %v", took, delay)
	}
}

func crash(b *bench) {
	b.send("a")
	b.one(b.source)
	b.abandon(b.source)
	b.wantKey(b.one(b.another()), "a")
}

// A group comes in the order of the sends, and only to one receiver while it holds one of them.
func inOrder(b *bench) {
	b.sendIn("g", "1", "2", "3", "4")
	first := b.some(b.source, 2)
	b.none(b.another())
	n := b.ackInOrder(b.source, 0, "g", first...)
	for n < 4 {
		n = b.ackInOrder(b.source, n, "g", b.some(b.source, 10)...)
	}
}

// A stalled group does not block others.
func sideBySide(b *bench) {
	b.sendIn("slow", "1", "2", "3")
	slow := b.some(b.source, 1)
	b.sendIn("fast", "1", "2", "3")
	for n, held := 0, len(slow); n < 3; {
		for _, d := range b.some(b.source, 10) {
			if d.OrderingKey == "slow" { // a broker may hand out more of a group to its holder
				b.wantKey(d, fmt.Sprint("slow/", held+1))
				held++
				slow = append(slow, d)
				continue
			}
			n = b.ackInOrder(b.source, n, "fast", d)
		}
	}
	n := b.ackInOrder(b.source, 0, "slow", slow...)
	for n < 3 {
		n = b.ackInOrder(b.source, n, "slow", b.some(b.source, 10)...)
	}
}

// Released deliveries come before those behind them, also to another receiver if the broker allows
// it.
func headReleased(b *bench) {
	b.sendIn("g", "1", "2", "3")
	b.release(b.source, time.Second, b.some(b.source, 2)...)
	other := b.next(b.source)
	for n := 0; n < 3; {
		n = b.ackInOrder(other, n, "g", b.some(other, 10)...)
	}
}

// Two receivers share four groups. Within each group, deliveries are acknowledged in order.
func twoReceivers(b *bench) {
	groups := []string{"a", "b", "c", "d"}
	const each = 6
	for n := range each {
		for _, g := range groups {
			b.sendIn(g, string(rune('1'+n)))
		}
	}
	seen := map[string][]string{}
	ctx, cancel := context.WithTimeout(b.Context(), b.Timeout)
	defer cancel()
	// The second stops half-way and must not block its groups for the first.
	sources := []pawl.Source{b.source, b.another()}
	for got, turn := 0, 0; got < each*len(groups); turn++ {
		s := sources[turn%len(sources)]
		ds, err := s.Receive(ctx, 3)
		if err != nil {
			b.Fatalf("after %d: %v", got, err)
		}
		for _, d := range b.took(s, ds) {
			seen[d.OrderingKey] = append(seen[d.OrderingKey], string(d.Payload))
			b.ack(s, d)
			got++
		}
		if got >= each*len(groups)/2 && len(sources) == 2 {
			b.stop(sources[1])
			b.finish(sources[1])
			sources = sources[:1]
		}
	}
	for _, g := range groups {
		if want := []string{"1", "2", "3", "4", "5", "6"}; !slices.Equal(seen[g], want) {
			b.Errorf("group %s came as %v", g, seen[g])
		}
	}
}

// A delivery handled during a drain keeps its group. After it is settled and the rest is released,
// the group continues elsewhere.
func stopInAGroup(b *bench) {
	b.sendIn("g", "1", "2", "3")
	held := b.some(b.source, 2)
	b.stop(b.source)
	other := b.another()
	b.none(other)
	n := b.ackInOrder(b.source, 0, "g", held[0])
	if len(held) > 1 {
		b.release(b.source, 0, held[1:]...)
	}
	b.finish(b.source)
	for n < 3 {
		n = b.ackInOrder(other, n, "g", b.some(other, 10)...)
	}
}
