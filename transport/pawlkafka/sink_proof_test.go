//go:build proof

package pawlkafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlkafka"
)

func openSink(t testing.TB, at string, topics []string, cfg pawlkafka.SinkConfig, opts ...kgo.Opt) *pawlkafka.Sink {
	t.Helper()
	s, err := pawlkafka.OpenSink(t.Context(), append([]kgo.Opt{kgo.SeedBrokers(at), kgo.MetadataMinAge(100 * time.Millisecond)}, opts...), topics, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// event returns an event as a relay passes it to a sink.
func event(id, aggregate string, payload []byte) pawl.Message {
	return pawl.Message{ID: id, Type: "OrderPlaced", AggregateType: "order", AggregateID: aggregate, Payload: payload, Headers: map[string]string{
		"ce-id": id, "ce-source": "/shop", "ce-specversion": "1.0", "ce-type": "OrderPlaced", "content-type": "application/json",
		pawl.HeaderEventID: id, "traceparent": "00-1", "own": "header"}}
}

func noErrors(t testing.TB, errs []error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// A source receives a published event with the event's id as its key, in the CloudEvents binding.
func TestSink_SourceRecognisesTheEvent(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic := createTopic(t, at, 3, nil)
	sink := openSink(t, at, []string{topic}, pawlkafka.SinkConfig{})
	noErrors(t, sink.Publish(t.Context(), []pawl.Message{event("e-1", "order-7", []byte(`{"a":1}`))}))
	s := open(t, quick(at), unique(t), []string{topic}, pawlkafka.Config{})
	d := get(t, s, 1)[0]
	if d.Key != "e-1" || string(d.Payload) != `{"a":1}` || d.OrderingKey != topic+"/order-7" {
		t.Errorf("received %+v", d)
	}
	for name, want := range map[string]string{"ce_id": "e-1", "ce_source": "/shop", "ce_specversion": "1.0", "ce_type": "OrderPlaced",
		"content-type": "application/json", pawl.HeaderEventID: "e-1", "traceparent": "00-1", "own": "header"} {
		if d.Attributes[name] != want {
			t.Errorf("%s is %q, want %q", name, d.Attributes[name], want)
		}
	}
	if d.Attributes["ce-id"] != "" {
		t.Error("the names of the HTTP binding are left")
	}
}

// The events of an aggregate go to one partition, others to any. TopicOf chooses the topic.
func TestSink_PlacesByAggregateAndTopic(t *testing.T) {
	t.Parallel()
	at := addr(t)
	orders, refunds := createTopic(t, at, 4, nil), createTopic(t, at, 4, nil)
	sink := openSink(t, at, []string{orders, refunds}, pawlkafka.SinkConfig{TopicOf: func(m pawl.Message) string {
		if m.Type == "RefundMade" {
			return refunds
		}
		return orders
	}})
	var ms []pawl.Message
	for n := range 40 {
		m := event(fmt.Sprint(n), fmt.Sprint("order-", n%8), []byte("x"))
		if n%2 == 1 {
			m.Type = "RefundMade"
		}
		ms = append(ms, m)
	}
	for chunk := range slices.Chunk(ms, 8) { // no two of the same aggregate
		noErrors(t, sink.Publish(t.Context(), chunk))
	}
	s := open(t, quick(at), unique(t), []string{orders, refunds}, pawlkafka.Config{})
	at1 := map[string]string{} // log by aggregate
	for _, d := range get(t, s, 40) {
		if before, known := at1[d.OrderingKey]; known && before != d.Log {
			t.Errorf("%s is in %s and in %s", d.OrderingKey, before, d.Log)
		}
		at1[d.OrderingKey] = d.Log
		if refund := strings.HasPrefix(d.Log, refunds); refund != (d.Attributes["ce_type"] == "OrderPlaced" && d.Key != "" && oddKey(d.Key)) {
			t.Errorf("event %s is in %s", d.Key, d.Log)
		}
	}
}

func oddKey(key string) bool {
	var n int
	_, err := fmt.Sscan(key, &n)
	return err == nil && n%2 == 1
}

// The largest event that Carries allows is accepted. With one byte more, Carries refuses it.
func TestSink_CarriesWhatTheTopicTakes(t *testing.T) {
	t.Parallel()
	at := addr(t)
	for _, limit := range []int{0, 2 << 20} {
		settings := map[string]string{}
		if limit > 0 {
			settings["max.message.bytes"] = fmt.Sprint(limit)
		}
		topic := createTopic(t, at, 1, settings)
		sink := openSink(t, at, []string{topic}, pawlkafka.SinkConfig{}, kgo.ProducerBatchCompression(kgo.NoCompression()))
		largest := 0
		body := make([]byte, 3<<20)
		for i := range body {
			body[i] = byte(rand.IntN(256))
		}
		for low, high := 0, len(body); low < high; {
			if middle := (low + high + 1) / 2; sink.Carries(event("id", "a", body[:middle])) == nil {
				low, largest = middle, middle
			} else {
				high = middle - 1
			}
		}
		if limit > 0 && largest < 1<<20 {
			t.Errorf("a topic that allows %d bytes carries %d, says Carries", limit, largest)
		}
		noErrors(t, sink.Publish(t.Context(), []pawl.Message{event("id", "a", body[:largest])}))
		err := sink.Publish(t.Context(), []pawl.Message{event("id", "a", body[:largest+1])})[0]
		if !pawl.IsFinal(err) || !strings.Contains(err.Error(), "max.message.bytes") {
			t.Errorf("one byte more: %v", err)
		}
		s := open(t, quick(at), unique(t), []string{topic}, pawlkafka.Config{})
		if d := get(t, s, 1)[0]; !bytes.Equal(d.Payload, body[:largest]) {
			t.Errorf("%d bytes were sent, but %d received, or other ones", largest, len(d.Payload))
		}
	}
}

func TestSink_RefusesWhatItCannotCarry(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic := createTopic(t, at, 1, nil)
	sink := openSink(t, at, []string{topic}, pawlkafka.SinkConfig{TopicOf: func(m pawl.Message) string { return m.Type }})
	m := event("id", "a", []byte("x"))
	if err := sink.Carries(m); err == nil || !strings.Contains(err.Error(), "was not given to OpenSink") {
		t.Errorf("an unknown topic: %v", err)
	}
	m.Type = topic
	m.Headers[pawlkafka.DefaultKeyHeader] = "another"
	if err := sink.Carries(m); err == nil || !strings.Contains(err.Error(), "carries the event's id") {
		t.Errorf("a header of the key's name: %v", err)
	}
	// The other events of the call are published.
	good := event("good", "b", nil)
	good.Type = topic
	errs := sink.Publish(t.Context(), []pawl.Message{m, good})
	if !pawl.IsFinal(errs[0]) || errs[1] != nil {
		t.Errorf("published %v", errs)
	}
	s := open(t, quick(at), unique(t), []string{topic}, pawlkafka.Config{})
	if d := get(t, s, 1)[0]; d.Key != "good" || d.Attributes[pawlkafka.TombstoneAttribute] != "" {
		t.Errorf("received %+v", d)
	}
}

// logOf returns the records of a partition from start to end.
func logOf(t testing.TB, at, topic string, partition int32) (all []*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ends, err := kadm.NewClient(client(t, at)).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, partition)
	c := client(t, at, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	for int64(len(all)) < end.Offset {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

// If the broker refuses a producer batch in the middle of a call, the log holds exactly the
// accepted messages, and none after them.
func TestSink_BatchIsAcceptedInOrderOrNotAtAll(t *testing.T) {
	t.Parallel()
	at := addr(t)
	admin := kadm.NewClient(client(t, at))
	for round, warm := range []bool{false, true, false, true} {
		topic := createTopic(t, at, 1, map[string]string{"max.message.bytes": "1000000"})
		sink := openSink(t, at, []string{topic}, pawlkafka.SinkConfig{}, kgo.ProducerBatchCompression(kgo.NoCompression()))
		before := 0
		if warm {
			n, err := sink.PublishBatch(t.Context(), []pawl.Message{event("warm", "a", []byte("x"))})
			if n != 1 || err != nil {
				t.Fatal(n, err)
			}
			before = 1
		}
		// The topic's limit is now below the one the sink knows: Kafka refuses batches of three
		// large bodies and accepts smaller ones.
		limit := "700000"
		if _, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, topic); err != nil {
			t.Fatal(err)
		}
		await(t, "the topic's limit is lower", func() bool {
			all, err := admin.DescribeTopicConfigs(t.Context(), topic)
			return err == nil && len(all) == 1 && slices.ContainsFunc(all[0].Configs, func(c kadm.Config) bool { return c.Key == "max.message.bytes" && c.MaybeValue() == limit })
		})
		var ms []pawl.Message
		for n := range 20 {
			size := 300_000
			if n == 0 || n > 10+round {
				size = 10 // small enough: the first and the last ones
			}
			ms = append(ms, event(fmt.Sprint(n), "a", bytes.Repeat([]byte{byte(n)}, size)))
		}
		accepted, err := sink.PublishBatch(t.Context(), ms)
		if err == nil || accepted == len(ms) {
			t.Fatalf("accepted %d, %v: the attack did not take place", accepted, err)
		}
		if !pawl.IsSinkDown(err) {
			t.Errorf("an error of several records is charged to one: %v", err)
		}
		log := logOf(t, at, topic, 0)[before:]
		if len(log) != accepted {
			t.Errorf("%d are accepted, but the log has %d", accepted, len(log))
		}
		for i, r := range log {
			if want := fmt.Sprint(i); header(r, pawlkafka.DefaultKeyHeader) != want {
				t.Errorf("record %d is event %s", i, header(r, pawlkafka.DefaultKeyHeader))
			}
		}
		t.Logf("round %d: accepted %d of %d: %v", round, accepted, len(ms), err)
	}
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// If the broker hangs, Publish returns soon after its context ends, and reports the sink as down.
func TestSink_ReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	own := ownBroker(t)
	topic := createTopic(t, own.Addr(), 1, nil)
	sink := openSink(t, own.Addr(), []string{topic}, pawlkafka.SinkConfig{})
	noErrors(t, sink.Publish(t.Context(), []pawl.Message{event("0", "a", []byte("x"))}))
	own.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	begun := time.Now()
	err := sink.Publish(ctx, []pawl.Message{event("1", "a", []byte("x"))})[0]
	if took := time.Since(begun); took > 2400*time.Millisecond {
		t.Errorf("Publish returned after %v", took)
	}
	if !pawl.IsSinkDown(err) {
		t.Errorf("the error is %v", err)
	}
	own.Wake()
	await(t, "it is published in the end", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return sink.Publish(ctx, []pawl.Message{event("1", "a", []byte("x"))})[0] == nil
	})
}

// The broker is killed repeatedly while batches of ten aggregates are published and retried. All
// confirmed events are in the log, and the first deliveries of each aggregate are in order.
func TestSink_BrokerKilled(t *testing.T) {
	t.Parallel()
	own := ownBroker(t)
	topic := createTopic(t, own.Addr(), 3, nil)
	sink := openSink(t, own.Addr(), []string{topic}, pawlkafka.SinkConfig{})
	const kills, aggregates = 4, 10
	publishing, stop := context.WithCancel(t.Context())
	confirmed := make([]int, aggregates)
	var publishers sync.WaitGroup
	unknown := 0
	var mu sync.Mutex
	var accepted atomic.Int64
	for a := range aggregates {
		publishers.Go(func() {
			for publishing.Err() == nil {
				var ms []pawl.Message
				for n := range 20 {
					ms = append(ms, event(fmt.Sprint(a, "-", confirmed[a]+n), fmt.Sprint("order-", a), []byte(fmt.Sprint(confirmed[a]+n))))
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				n, err := sink.PublishBatch(ctx, ms)
				cancel()
				confirmed[a] += n
				accepted.Add(int64(n))
				if err != nil {
					mu.Lock()
					unknown++
					mu.Unlock()
				}
			}
		})
	}
	for range kills {
		had := accepted.Load()
		await(t, "something is published", func() bool { return accepted.Load() > had+100 })
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond) // kill at a random time
		own.Kill()
		time.Sleep(200 * time.Millisecond)
		if err := own.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "it publishes again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return sink.Publish(ctx, []pawl.Message{event("last", "", []byte("last"))})[0] == nil
	})
	stop()
	publishers.Wait()
	total, again := 0, 0
	next := map[string]int{}
	for p := range int32(3) {
		for _, r := range logOf(t, own.Addr(), topic, p) {
			if r.Key == nil {
				continue
			}
			var n int
			fmt.Sscan(string(r.Value), &n)
			switch key := string(r.Key); {
			case n < next[key]:
				again++
			case n == next[key]:
				next[key]++
			default:
				t.Fatalf("event %d of %s came first after %d", n, key, next[key]-1)
			}
		}
	}
	for a := range aggregates {
		total += confirmed[a]
		if got := next[fmt.Sprint("order-", a)]; got < confirmed[a] {
			t.Errorf("aggregate %d: %d confirmed, %d in the log", a, confirmed[a], got)
		}
	}
	t.Logf("%d confirmed, %d batches unknown, %d records twice", total, unknown, again)
	if unknown == 0 || total == 0 {
		t.Error("the attack did not take place")
	}
}

func TestOpenSink_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic := createTopic(t, at, 1, nil)
	for name, c := range map[string]struct {
		opts   []kgo.Opt
		topics []string
		says   string
	}{
		"no topic":          {nil, nil, "name at least one"},
		"unknown topic":     {nil, []string{"nowhere"}, `topic "nowhere" does not exist`},
		"weak acks":         {[]kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()}, []string{topic}, "kgo.RequiredAcks"},
		"no idempotence":    {[]kgo.Opt{kgo.DisableIdempotentWrite()}, []string{topic}, "kgo.DisableIdempotentWrite"},
		"topics on the way": {[]kgo.Opt{kgo.AllowAutoTopicCreation()}, []string{topic}, "kgo.AllowAutoTopicCreation"},
		"a default topic":   {[]kgo.Opt{kgo.DefaultProduceTopic("x")}, []string{topic}, "kgo.DefaultProduceTopic"},
		"by hand":           {[]kgo.Opt{kgo.ManualFlushing()}, []string{topic}, "kgo.ManualFlushing"},
		"transactions":      {[]kgo.Opt{kgo.TransactionalID("x")}, []string{topic}, "ransactional"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := pawlkafka.OpenSink(t.Context(), append([]kgo.Opt{kgo.SeedBrokers(at)}, c.opts...), c.topics, pawlkafka.SinkConfig{})
			if err == nil {
				s.Close()
				t.Fatal("OpenSink returned no error")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %q, want %q in it", err, c.says)
			}
		})
	}
}
