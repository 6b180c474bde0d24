//go:build proof

package pawlkafka_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/receipt"
	"github.com/pawl-go/pawl/transport/pawlkafka"
)

func ack(t testing.TB, s pawl.Source, ds ...pawl.Delivery) {
	t.Helper()
	if err := s.Ack(context.Background(), receipts(ds...)...); err != nil {
		t.Fatal(err)
	}
}

func receipts(ds ...pawl.Delivery) []pawl.Receipt {
	rs := make([]pawl.Receipt, len(ds))
	for i, d := range ds {
		rs[i] = receipt.Committed[pawl.Receipt](d.Handle)
	}
	return rs
}

// committed returns the group's committed offset of a partition; -1 for none.
func committed(t testing.TB, admin *kadm.Client, group, topic string, partition int32) (offset int64, metadata string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	all, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	if c, there := all.Lookup(topic, partition); there {
		return c.At, c.Metadata
	}
	return -1, ""
}

// keysOf returns the keys of deliveries in their order.
func keysOf(ds []pawl.Delivery) string {
	all := make([]string, len(ds))
	for i, d := range ds {
		all[i] = d.Key
	}
	return strings.Join(all, " ")
}

// events collects the events of a source.
type events struct {
	mu  sync.Mutex
	all []pawl.Event
}

func (e *events) hooks() pawl.Hooks {
	return pawl.Hooks{OnEvent: func(_ context.Context, one pawl.Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, one)
	}}
}

// has reports whether an event of a kind contains text.
func (e *events) has(kind pawl.EventKind, text string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, one := range e.all {
		if one.Kind == kind && strings.Contains(fmt.Sprint(one.Op, " ", one.Err), text) {
			return true
		}
	}
	return false
}

// A delivery holds all properties of the record that a handler or an operator may need.
func TestReceive_DeliveryFields(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic := createTopic(t, at, 1, nil)
	binary := []byte{0, 0xff, 1}
	produce(t, at,
		&kgo.Record{Topic: topic, Key: []byte("order-7"), Value: []byte("first"), Headers: []kgo.RecordHeader{
			{Key: "Idempotency-Key", Value: []byte("old")}, {Key: "Idempotency-Key", Value: []byte("new")}, {Key: "photo", Value: binary},
			{Key: "note", Value: []byte("a")}, {Key: "note", Value: []byte("b")}}},
		&kgo.Record{Topic: topic, Key: binary, Headers: []kgo.RecordHeader{{Key: "ce_source", Value: []byte("/shop")}, {Key: "ce_id", Value: []byte("1")}}},
		&kgo.Record{Topic: topic, Value: []byte{}})
	s := open(t, quick(at), unique(t), []string{topic}, pawlkafka.Config{})
	ds := get(t, s, 3)
	first, tombstone, empty := ds[0], ds[1], ds[2]
	if first.Key != "new" || string(first.Payload) != "first" || first.OrderingKey != topic+"/order-7" || first.Attributes["note"] != "b" {
		t.Errorf("received %+v", first)
	}
	if got := first.Attributes["photo"+pawlkafka.BinarySuffix]; got != base64.StdEncoding.EncodeToString(binary) {
		t.Errorf("the binary header came as %q", got)
	}
	if first.Attributes[pawlkafka.RecordKeyAttribute] != "order-7" || first.Log != topic+"/0" || first.Offset != 0 || first.Receives != 1 {
		t.Errorf("received %+v", first)
	}
	if time.Since(first.ProducedAt).Abs() > time.Hour || !first.SentAt.IsZero() {
		t.Errorf("produced at %v, sent at %v: the timestamp is the producer's", first.ProducedAt, first.SentAt)
	}
	if !strings.HasPrefix(first.MessageID, topic+"#") || !strings.HasSuffix(first.MessageID, "/0/0") {
		t.Errorf("the message id is %q", first.MessageID)
	}
	if tombstone.Key != pawl.Key("/shop", "1") || tombstone.Attributes[pawlkafka.TombstoneAttribute] != "true" || len(tombstone.Payload) != 0 ||
		tombstone.OrderingKey != topic+"/hex:00ff01" || tombstone.Attributes[pawlkafka.RecordKeyAttribute+pawlkafka.BinarySuffix] == "" {
		t.Errorf("received %+v", tombstone)
	}
	if _, is := empty.Attributes[pawlkafka.TombstoneAttribute]; is || empty.OrderingKey != "" || empty.Key != "" {
		t.Errorf("an empty record came as %+v", empty)
	}
}

// If the broker sets the timestamp, it becomes SentAt.
func TestReceive_TimestampOfTheBroker(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic := createTopic(t, at, 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	produce(t, at, keyed(topic, 0, "a"))
	s := open(t, quick(at), unique(t), []string{topic}, pawlkafka.Config{})
	if d := get(t, s, 1)[0]; time.Since(d.SentAt).Abs() > time.Minute || !d.ProducedAt.IsZero() {
		t.Errorf("produced at %v, sent at %v", d.ProducedAt, d.SentAt)
	}
}

// Of three records the second is acknowledged, and the process dies. The first and the third come
// again, and possibly the second.
func TestCommit_PassesNothingUnsettled(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	produce(t, at, keyed(topic, 0, "1"), keyed(topic, 0, "2"), keyed(topic, 0, "3"))
	w := &wire{}
	first := open(t, append(quick(at), kgo.Dialer(w.dial), kgo.SessionTimeout(2*time.Second)), group, []string{topic}, pawlkafka.Config{})
	ds := get(t, first, 3)
	ack(t, first, ds[1])
	admin := kadm.NewClient(client(t, at))
	time.Sleep(3 * commitEvery) // time for three commits, which must not happen
	if offset, _ := committed(t, admin, group, topic, 0); offset > 0 {
		t.Fatalf("committed is %d, but the first record is not settled", offset)
	}
	w.crash()
	second := open(t, quick(at), group, []string{topic}, pawlkafka.Config{})
	if got := keysOf(get(t, second, 3)); got != "1 2 3" {
		t.Errorf("came again: %s", got)
	}
}

const commitEvery = 100 * time.Millisecond

// Settled records are committed without further calls, and the metadata holds the topic's id.
func TestCommit_ComesByItself(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	produce(t, at, keyed(topic, 0, "1"), keyed(topic, 0, "2"), keyed(topic, 0, "3"))
	s := open(t, quick(at), group, []string{topic}, pawlkafka.Config{})
	ds := get(t, s, 3)
	ack(t, s, ds[2], ds[0])
	admin := kadm.NewClient(client(t, at))
	await(t, "the first is committed", func() bool { offset, _ := committed(t, admin, group, topic, 0); return offset == 1 })
	ack(t, s, ds[1])
	await(t, "all are committed", func() bool { offset, _ := committed(t, admin, group, topic, 0); return offset == 3 })
	if _, metadata := committed(t, admin, group, topic, 0); !strings.Contains(metadata, `"pawl":1,"taken":0,"topic":"`) {
		t.Errorf("the metadata of the commit is %q", metadata)
	}
}

// A revoke waits for started deliveries and drops the others. Later receipts commit nothing.
func TestRevoke_WaitsForStartedWork(t *testing.T) {
	t.Parallel()
	for _, serverSide := range []bool{false, true} {
		t.Run(fmt.Sprint("ServerSideBalancer=", serverSide), func(t *testing.T) {
			t.Parallel()
			revokeWaits(t, pawlkafka.Config{ServerSideBalancer: serverSide})
		})
	}
}

func revokeWaits(t *testing.T, cfg pawlkafka.Config) {
	at := addr(t)
	topic, group := createTopic(t, at, 2, nil), unique(t)
	const probes = 400
	for p := range int32(2) {
		rs := []*kgo.Record{keyed(topic, p, "begun"), keyed(topic, p, "held")}
		for range probes {
			rs = append(rs, keyed(topic, p, "probe"))
		}
		produce(t, at, rs...)
	}
	a := open(t, quick(at), group, []string{topic}, cfg)
	held := map[string][]pawl.Delivery{}
	for _, d := range get(t, a, 2*(2+probes)) {
		held[d.Log] = append(held[d.Log], d)
	}
	for log, ds := range held {
		if !a.StillHeld(ds[0]) {
			t.Fatalf("%s of %s is not held", ds[0].Key, log)
		}
	}
	b := open(t, quick(at), group, []string{topic}, cfg)
	joining, stop := context.WithCancel(context.Background())
	defer stop()
	got := make(chan pawl.Delivery, 2*(2+probes))
	go func() {
		for joining.Err() == nil {
			ds, _ := b.Receive(joining, 10)
			for _, d := range ds {
				got <- d
			}
		}
	}()
	// b joins, and a must give one partition up: no delivery of it can be started any more.
	var moved string
	probe := 2
	await(t, "a gives a partition up", func() bool {
		for log, ds := range held {
			if !a.StillHeld(ds[probe]) {
				moved = log
				return true
			}
			ack(t, a, ds[probe])
		}
		probe++
		return false
	})
	if a.StillHeld(held[moved][1]) {
		t.Error("a delivery of a leaving partition is still held")
	}
	select {
	case d := <-got:
		t.Fatalf("b received %s of %s while a works on it", d.Key, d.Log)
	case <-time.After(time.Second):
	}
	ack(t, a, held[moved][0])
	select {
	case d := <-got:
		if d.Log != moved || d.Key != "held" || d.Offset != 1 {
			t.Errorf("b received %s of %s at %d, want held of %s", d.Key, d.Log, d.Offset, moved)
		}
	case <-time.After(time.Minute):
		t.Fatal("b receives nothing after a settled its started delivery")
	}
	// Later receipts from a change nothing for b.
	lost := a.Stats().LostHandles
	ack(t, a, held[moved][1:]...)
	if n := a.Stats().LostHandles - lost; n < probes/2 {
		t.Errorf("only %d receipts for a moved partition are counted as lost", n)
	}
	admin := kadm.NewClient(client(t, at))
	var partition int32
	if _, err := fmt.Sscan(strings.TrimPrefix(moved, topic+"/"), &partition); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * commitEvery) // time for three commits, which must change nothing
	if offset, _ := committed(t, admin, group, topic, partition); offset != 1 {
		t.Errorf("committed is %d, want 1", offset)
	}
}

// Released records come again to this receiver after their delay, and hold back the commit.
func TestRelease_HoldsTheCommit(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	produce(t, at, keyed(topic, 0, "1"), keyed(topic, 0, "2"))
	s := open(t, quick(at), group, []string{topic}, pawlkafka.Config{})
	ds := get(t, s, 2)
	if err := s.Release(context.Background(), 500*time.Millisecond, ds[0]); err != nil {
		t.Fatal(err)
	}
	ack(t, s, ds[1])
	again := get(t, s, 1)[0]
	admin := kadm.NewClient(client(t, at))
	if offset, _ := committed(t, admin, group, topic, 0); offset > 0 {
		t.Errorf("committed is %d, but the first record was released", offset)
	}
	if again.Key != "1" || again.Receives != 2 {
		t.Errorf("came again: %s, receives %d", again.Key, again.Receives)
	}
	ack(t, s, again)
	await(t, "both are committed", func() bool { offset, _ := committed(t, admin, group, topic, 0); return offset == 2 })
}

// When a member dies, its partitions count a takeover, and their records come with a higher
// Receives. The count ends when the commit moves on or the partition is revoked cleanly.
func TestTakeovers_AreCounted(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	produce(t, at, keyed(topic, 0, "1"), keyed(topic, 0, "2"))
	dying := func() (*pawlkafka.Source, *wire) {
		w := &wire{}
		return open(t, append(quick(at), kgo.Dialer(w.dial), kgo.SessionTimeout(1500*time.Millisecond)), group, []string{topic}, pawlkafka.Config{}), w
	}
	for want := 1; want <= 3; want++ {
		s, w := dying()
		ds := get(t, s, 2)
		if ds[0].Receives != want || ds[1].Receives != want {
			t.Fatalf("receives %d and %d, want %d", ds[0].Receives, ds[1].Receives, want)
		}
		w.crash()
	}
	s, w := dying()
	ds := get(t, s, 2)
	ack(t, s, ds[0]) // moves the commit on
	admin := kadm.NewClient(client(t, at))
	await(t, "the first is committed", func() bool { offset, _ := committed(t, admin, group, topic, 0); return offset == 1 })
	w.crash()
	s, _ = dying()
	if d := get(t, s, 1)[0]; d.Key != "2" || d.Receives != 1 {
		t.Errorf("after the commit moved on: %s, receives %d", d.Key, d.Receives)
	}
	produce(t, at, keyed(topic, 0, "3"))
	if d := get(t, s, 1)[0]; d.Receives != 1 {
		t.Errorf("a new record: receives %d", d.Receives)
	}
	finish(s)
	s, _ = dying()
	if d := get(t, s, 1)[0]; d.Key != "2" || d.Receives != 1 {
		t.Errorf("after a clean leave: %s, receives %d", d.Key, d.Receives)
	}
}

// A full window pauses fetching until half of it is settled.
func TestWindow_IsBounded(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	const all, bound = 3000, 100
	for n := range all / 500 { // in batches, because a fetch is taken whole
		var rs []*kgo.Record
		for i := range 500 {
			rs = append(rs, keyed(topic, 0, fmt.Sprint(500*n+i)))
		}
		produce(t, at, rs...)
	}
	s := open(t, append(quick(at), kgo.FetchMaxPartitionBytes(4<<10)), group, []string{topic}, pawlkafka.Config{MaxRecords: bound})
	seen := 0
	for held := []pawl.Delivery(nil); seen < all; {
		ds := get(t, s, 1)
		if held = append(held, ds...); len(held)+s.Stats().Buffered > bound+pollRecords {
			t.Fatalf("%d are held and %d buffered, the bound is %d", len(held), s.Stats().Buffered, bound)
		}
		for _, d := range ds {
			if d.Key != fmt.Sprint(seen) {
				t.Fatalf("received %s, want %d", d.Key, seen)
			}
			seen++
		}
		if len(held) == 50 || seen == all {
			ack(t, s, held...)
			held = nil
		}
	}
	admin := kadm.NewClient(client(t, at))
	await(t, "all are committed", func() bool { offset, _ := committed(t, admin, group, topic, 0); return offset == all })
}

const pollRecords = 1000

// Finish leaves the group, so another member gets the partitions long before the session expires.
func TestFinish_LeavesTheGroup(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	produce(t, at, keyed(topic, 0, "1"), keyed(topic, 0, "2"))
	long := append(quick(at), kgo.SessionTimeout(5*time.Minute))
	a := open(t, long, group, []string{topic}, pawlkafka.Config{})
	ds := get(t, a, 2)
	ack(t, a, ds[0])
	if err := a.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin := kadm.NewClient(client(t, at))
	if offset, _ := committed(t, admin, group, topic, 0); offset != 1 {
		t.Errorf("committed is %d after Finish, want 1", offset)
	}
	if err := a.Ack(t.Context(), receipts(ds[1])...); err == nil {
		t.Error("Ack after Finish returns no error")
	}
	if err := a.Release(t.Context(), 0, ds[1]); err == nil {
		t.Error("Release after Finish returns no error")
	}
	if a.StillHeld(ds[1]) {
		t.Error("a delivery is still held after Finish")
	}
	b := open(t, long, group, []string{topic}, pawlkafka.Config{})
	if got := keysOf(get(t, b, 1)); got != "2" {
		t.Errorf("the next owner received %s", got)
	}
}

// If retention deletes unread records, the source reports it, even for those after the commit.
func TestLog_DeletedUnread(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	produce(t, at, keyed(topic, 0, "0"), keyed(topic, 0, "1"), keyed(topic, 0, "2"), keyed(topic, 0, "3"))
	a := open(t, quick(at), group, []string{topic}, pawlkafka.Config{})
	ack(t, a, get(t, a, 1)...)
	finish(a)
	admin := kadm.NewClient(client(t, at))
	cut := kadm.Offsets{}
	cut.Add(kadm.Offset{Topic: topic, Partition: 0, At: 3})
	if _, err := admin.DeleteRecords(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	var seen events
	b := open(t, quick(at), group, []string{topic}, pawlkafka.Config{Hooks: seen.hooks()})
	if got := keysOf(get(t, b, 1)); got != "3" {
		t.Errorf("received %s", got)
	}
	if !seen.has(pawl.EventError, "starts at offset 3, but offset 1 was next") {
		t.Errorf("nothing was said: %v", seen.all)
	}
}

// A log that ends before the commit has lost records and may hold others at their offsets. The
// source receives all of them as new, and reports it.
func TestLog_EndsBeforeTheCommit(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	produce(t, at, keyed(topic, 0, "0"), keyed(topic, 0, "1"))
	admin := kadm.NewClient(client(t, at))
	ahead := kadm.Offsets{}
	ahead.Add(kadm.Offset{Topic: topic, Partition: 0, At: 1000, LeaderEpoch: -1})
	if _, err := admin.CommitOffsets(t.Context(), group, ahead); err != nil {
		t.Fatal(err)
	}
	var seen events
	s := open(t, quick(at), group, []string{topic}, pawlkafka.Config{Hooks: seen.hooks()})
	ds := get(t, s, 2)
	if got := keysOf(ds); got != "0 1" {
		t.Errorf("received %s", got)
	}
	if !seen.has(pawl.EventError, "was truncated: offset 0 came, but 1000 was next") {
		t.Errorf("nothing was said: %v", seen.all)
	}
	ack(t, s, ds...)
	await(t, "the commit is back at the end of the log", func() bool { offset, _ := committed(t, admin, group, topic, 0); return offset == 2 })
}

// If a topic is deleted and recreated while a source runs, the source receives it from its first
// record on, with other message ids and keys.
func TestTopic_RecreatedWhileReceived(t *testing.T) {
	t.Parallel()
	madeAnew(t)
}

// The same holds for a group that starts at the end if it has no commit.
func TestTopic_RecreatedIsReceivedFromItsStart(t *testing.T) {
	t.Parallel()
	madeAnew(t, kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd()))
}

func madeAnew(t *testing.T, opts ...kgo.Opt) {
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	produce(t, at, keyed(topic, 0, "old-0"), keyed(topic, 0, "old-1"))
	first := kadm.Offsets{}
	first.AddOffset(topic, 0, 0, -1)
	if _, err := kadm.NewClient(client(t, at)).CommitOffsets(t.Context(), group, first); err != nil {
		t.Fatal(err)
	}
	var seen events
	s := open(t, append(append(quick(at), kgo.MetadataMaxAge(time.Second)), opts...), group, []string{topic}, pawlkafka.Config{Key: pawlkafka.KeyPosition(), Hooks: seen.hooks()})
	old := get(t, s, 2)
	ack(t, s, old...)
	admin := kadm.NewClient(client(t, at))
	await(t, "both are committed", func() bool { offset, _ := committed(t, admin, group, topic, 0); return offset == 2 })
	if _, err := admin.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	await(t, "the topic is gone", func() bool {
		all, err := admin.ListTopics(t.Context(), topic)
		return err == nil && all[topic].Err != nil
	})
	makeTopic(t, at, topic, 1, nil)
	produce(t, at, keyed(topic, 0, "new-0"))
	var d pawl.Delivery
	await(t, "a record of the new topic comes", func() bool {
		ds, _ := s.Receive(t.Context(), 1) // fetches fail meanwhile
		if len(ds) > 0 {
			d = ds[0]
		}
		return len(ds) > 0
	})
	if string(d.Payload) != "body of new-0" || d.Offset != 0 {
		t.Errorf("received %+v", d)
	}
	if d.MessageID == old[0].MessageID || d.Key == old[0].Key {
		t.Errorf("a record of the new topic has the id %q and the key %q of an old record", d.MessageID, d.Key)
	}
	if !seen.has(pawl.EventError, "was deleted and recreated") {
		t.Errorf("nothing was said: %v", seen.all)
	}
	ack(t, s, d)
	await(t, "it is committed", func() bool { offset, _ := committed(t, admin, group, topic, 0); return offset == 1 })
}

// Records of a deleted topic that are settled late are not committed for the recreated topic. Such
// a commit would skip its first records.
func TestTopic_OldOffsetsAreNotCommittedForTheNew(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	for n := range 20 {
		produce(t, at, keyed(topic, 0, fmt.Sprint("old-", n)))
	}
	var seen events
	s := open(t, quick(at), group, []string{topic}, pawlkafka.Config{Hooks: seen.hooks()})
	old := get(t, s, 20)
	if !s.StillHeld(old[0]) { // being handled, so a revoke would wait for it
		t.Fatal("the first delivery is not held")
	}
	ack(t, s, old[1:]...)
	admin := kadm.NewClient(client(t, at))
	if _, err := admin.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	await(t, "the topic is recreated", func() bool {
		made, err := admin.CreateTopics(t.Context(), 1, -1, nil, topic)
		return err == nil && made[topic].Err == nil
	})
	producer := client(t, at, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	await(t, "a record can be sent", func() bool { return producer.ProduceSync(t.Context(), keyed(topic, 0, "new-0")).FirstErr() == nil })
	await(t, "the source has noticed", func() bool {
		_, _ = s.Receive(t.Context(), 1)
		return seen.has(pawl.EventError, "was deleted and recreated")
	})
	time.Sleep(time.Second) // longer than the client needs to load the new topic
	ack(t, s, old[0])       // with the old mark, the commit would be 20
	for range 10 {
		if offset, _ := committed(t, admin, group, topic, 0); offset > 1 {
			t.Fatalf("committed is %d, but the new topic has one record", offset)
		}
		time.Sleep(commitEvery)
	}
}

// A commit of an earlier topic of the same name is ignored.
func TestTopic_CommitOfAnEarlierTopic(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	produce(t, at, keyed(topic, 0, "0"), keyed(topic, 0, "1"))
	admin := kadm.NewClient(client(t, at))
	other := kadm.Offsets{}
	other.Add(kadm.Offset{Topic: topic, Partition: 0, At: 1, LeaderEpoch: -1, Metadata: `{"pawl":1,"taken":0,"topic":"0123456789abcdef0123456789abcdef"}`})
	if _, err := admin.CommitOffsets(t.Context(), group, other); err != nil {
		t.Fatal(err)
	}
	var seen events
	s := open(t, quick(at), group, []string{topic}, pawlkafka.Config{Hooks: seen.hooks()})
	if got := keysOf(get(t, s, 2)); got != "0 1" {
		t.Errorf("received %s", got)
	}
	if !seen.has(pawl.EventError, "belongs to an earlier topic of that name") {
		t.Errorf("nothing was said: %v", seen.all)
	}
}

// Records of aborted transactions are not received.
func TestReceive_SkipsAbortedTransactions(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	c := client(t, at, kgo.TransactionalID(unique(t)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for n, commit := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := c.ProduceSync(t.Context(), keyed(topic, 0, fmt.Sprint(n))).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := c.EndTransaction(t.Context(), commit); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, quick(at), group, []string{topic}, pawlkafka.Config{})
	ds := get(t, s, 2)
	if got := keysOf(ds); got != "1 3" {
		t.Errorf("received %s", got)
	}
	ack(t, s, ds...)
	admin := kadm.NewClient(client(t, at))
	await(t, "the last is committed", func() bool { offset, _ := committed(t, admin, group, topic, 0); return offset == ds[1].Offset+1 })
}

// The redelivery horizon follows the topic's settings.
func TestInfo_HorizonFollowsTheTopic(t *testing.T) {
	t.Parallel()
	at := addr(t)
	hour := fmt.Sprint(time.Hour.Milliseconds())
	for want, settings := range map[time.Duration]map[string]string{
		3 * time.Hour:    {"retention.ms": hour, "segment.ms": hour},
		pawl.Forever:     {"retention.ms": "-1"},
		pawl.Forever - 1: {"cleanup.policy": "compact,delete"},
	} {
		topic := createTopic(t, at, 1, settings)
		s := open(t, quick(at), unique(t), []string{topic}, pawlkafka.Config{})
		if got := s.Info().RedeliveryHorizon; got != want && !(want == pawl.Forever-1 && got == pawl.Forever) {
			t.Errorf("%v: the horizon is %v, want %v", settings, got, want)
		}
		if !s.Info().Cumulative {
			t.Error("Info does not report cumulative acknowledgements")
		}
	}
}

// Backlog counts the records that are left.
func TestBacklog(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 2, nil), unique(t)
	produce(t, at, keyed(topic, 0, "0"), keyed(topic, 0, "1"), keyed(topic, 1, "2"))
	s := open(t, quick(at), group, []string{topic}, pawlkafka.Config{})
	left := func(want int64) func() bool {
		return func() bool {
			b, err := s.Backlog(t.Context()) // a broker that just started has no coordinator yet
			return err == nil && b == pawlkafka.Backlog{Records: want, Partitions: 2}
		}
	}
	await(t, "three are left", left(3))
	ack(t, s, get(t, s, 3)...)
	await(t, "nothing is left", left(0))
}

func TestOpen_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic := createTopic(t, at, 1, nil)
	none := func(context.Context, *kgo.Client, map[string][]int32) {}
	for name, c := range map[string]struct {
		opts   []kgo.Opt
		group  string
		topics []string
		cfg    pawlkafka.Config
		says   string
	}{
		"no topic":           {nil, "g", nil, pawlkafka.Config{}, "name at least one"},
		"no group":           {nil, "", []string{topic}, pawlkafka.Config{}, "the name of the group is empty"},
		"unknown topic":      {nil, "g", []string{"nowhere"}, pawlkafka.Config{}, `topic "nowhere" does not exist (create it`},
		"no broker":          {[]kgo.Opt{kgo.SeedBrokers("127.0.0.1:1")}, "g", []string{topic}, pawlkafka.Config{}, "check kgo.SeedBrokers"},
		"a wait":             {nil, "g", []string{topic}, pawlkafka.Config{Wait: time.Hour}, "Wait is 1h0m0s"},
		"a window":           {nil, "g", []string{topic}, pawlkafka.Config{MaxRecords: -1}, "MaxRecords is -1"},
		"octets":             {nil, "g", []string{topic}, pawlkafka.Config{MaxOctets: -1}, "MaxOctets is -1"},
		"total octets":       {nil, "g", []string{topic}, pawlkafka.Config{MaxTotalOctets: 1}, "MaxTotalOctets is 1"},
		"a key":              {nil, "g", []string{topic}, pawlkafka.Config{Key: pawlkafka.KeyHeader("")}, "KeyHeader needs a name"},
		"a pointer":          {nil, "g", []string{topic}, pawlkafka.Config{Key: pawlkafka.KeyFirst(pawlkafka.KeyJSON("x"))}, "KeyJSON"},
		"another group":      {[]kgo.Opt{kgo.ConsumerGroup("h")}, "g", []string{topic}, pawlkafka.Config{}, "kgo.ConsumerGroup"},
		"topics":             {[]kgo.Opt{kgo.ConsumeTopics("t")}, "g", []string{topic}, pawlkafka.Config{}, "kgo.ConsumeTopics"},
		"uncommitted":        {[]kgo.Opt{kgo.FetchIsolationLevel(kgo.ReadUncommitted())}, "g", []string{topic}, pawlkafka.Config{}, "kgo.FetchIsolationLevel"},
		"another balancer":   {[]kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}, "g", []string{topic}, pawlkafka.Config{}, "kgo.Balancers"},
		"blocking polls":     {[]kgo.Opt{kgo.BlockRebalanceOnPoll()}, "g", []string{topic}, pawlkafka.Config{}, "kgo.BlockRebalanceOnPoll"},
		"assigned":           {[]kgo.Opt{kgo.OnPartitionsAssigned(none)}, "g", []string{topic}, pawlkafka.Config{}, "kgo.OnPartitionsAssigned"},
		"revoked":            {[]kgo.Opt{kgo.OnPartitionsRevoked(none)}, "g", []string{topic}, pawlkafka.Config{}, "kgo.OnPartitionsRevoked"},
		"lost":               {[]kgo.Opt{kgo.OnPartitionsLost(none)}, "g", []string{topic}, pawlkafka.Config{}, "kgo.OnPartitionsLost"},
		"reset to the end":   {reset(kgo.NewOffset().AtEnd()), "g", []string{topic}, pawlkafka.Config{}, "kgo.ConsumeStartOffset"},
		"reset to now":       {reset(kgo.NewOffset().AfterMilli(time.Now().UnixMilli())), "g", []string{topic}, pawlkafka.Config{}, "kgo.ConsumeStartOffset"},
		"reset behind -2 ms": {reset(kgo.NewOffset().AfterMilli(-2)), "g", []string{topic}, pawlkafka.Config{}, "kgo.ConsumeStartOffset"},
		"reset behind start": {reset(kgo.NewOffset().AtStart().Relative(5)), "g", []string{topic}, pawlkafka.Config{}, "kgo.ConsumeStartOffset"},
		"reset to an offset": {reset(kgo.NewOffset().At(7)), "g", []string{topic}, pawlkafka.Config{}, "kgo.ConsumeStartOffset"},
		"reset to the last":  {reset(kgo.LookbackOffset(time.Hour)), "g", []string{topic}, pawlkafka.Config{}, "kgo.ConsumeStartOffset"},
		"reset by a minute":  {reset(kgo.RewindOffset(time.Minute)), "g", []string{topic}, pawlkafka.Config{}, "kgo.ConsumeStartOffset"},
		"reset to a commit":  {reset(kgo.NewOffset().AtCommitted()), "g", []string{topic}, pawlkafka.Config{}, "kgo.ConsumeStartOffset"},
		"topics on the way":  {[]kgo.Opt{kgo.AllowAutoTopicCreation()}, "g", []string{topic}, pawlkafka.Config{}, "kgo.AllowAutoTopicCreation"},
		"control records":    {[]kgo.Opt{kgo.KeepControlRecords()}, "g", []string{topic}, pawlkafka.Config{}, "kgo.KeepControlRecords"},
		"server side":        {[]kgo.Opt{kgo.ServerSideBalancer()}, "g", []string{topic}, pawlkafka.Config{}, "Config.ServerSideBalancer"},
		"a short rebalance":  {[]kgo.Opt{kgo.RebalanceTimeout(6 * time.Second), kgo.SessionTimeout(6 * time.Second)}, "g", []string{topic}, pawlkafka.Config{}, "RebalanceTimeout is 6s"},
		"a transactional id": {[]kgo.Opt{kgo.TransactionalID("x")}, "g", []string{topic}, pawlkafka.Config{}, "ransactional"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			s, err := pawlkafka.Open(ctx, append([]kgo.Opt{kgo.SeedBrokers(at)}, c.opts...), c.group, c.topics, c.cfg)
			if err == nil {
				finish(s)
				t.Fatal("Open returned no error")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %q, want %q in it", err, c.says)
			}
			var ours *pawl.Error
			if !errors.As(err, &ours) || ours.Op != "kafka.open" {
				t.Errorf("the error is %#v", err)
			}
		})
	}
}

// Open accepts options that a user needs.
func TestOpen_TakesOptions(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic := createTopic(t, at, 1, nil)
	produce(t, at, keyed(topic, 0, "early"))
	group := unique(t)
	var seen events
	s := open(t, append(quick(at), kgo.ClientID("shop"), kgo.InstanceID("one"), kgo.Rack("r"), kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset().AtStart()), kgo.MetadataMinAge(time.Second)), group, []string{topic}, pawlkafka.Config{Hooks: seen.hooks()})
	if system, destination := s.Broker(); system != "kafka" || destination != topic {
		t.Errorf("Broker returns %s and %s", system, destination)
	}
	if ds, err := s.Receive(t.Context(), 1); err != nil || len(ds) > 0 {
		t.Errorf("received %v, %v", ds, err)
	}
	await(t, "the skipped records are reported", func() bool {
		return seen.has(pawl.EventError, "group "+group+" has no commit of "+topic+"/0: it starts where kgo.ConsumeStartOffset says")
	})
}

func reset(to kgo.Offset) []kgo.Opt { return []kgo.Opt{kgo.ConsumeResetOffset(to)} }

// A delivery that has begun and is not settled when its source is finished counts a takeover, as
// after a death. So a consumer notices a record whose handler is abandoned by each stop.
func TestTakeovers_CountWhatAFinishAbandons(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	produce(t, at, keyed(topic, 0, "1"), keyed(topic, 0, "2"))
	for want := 1; want <= 3; want++ {
		s := open(t, quick(at), group, []string{topic}, pawlkafka.Config{})
		ds := get(t, s, 2)
		if ds[0].Receives != want || ds[1].Receives != want {
			t.Fatalf("receives %d and %d, want %d", ds[0].Receives, ds[1].Receives, want)
		}
		if !s.StillHeld(ds[0]) {
			t.Fatal("the record is not held")
		}
		finish(s)
	}
}
