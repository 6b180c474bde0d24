//go:build proof

package pawlkafka_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/transport/pawlkafka"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// One produce response covers all batches of its request, one per partition. Each message gets the
// result of its own partition, and none counts as published without a confirmation. A proxy delays
// Kafka's responses. The topics are compacted, so Kafka refuses records without a key.
func TestSink_Answers(t *testing.T) {
	t.Parallel()
	at := addr(t)
	var topics []string
	of := map[string]string{} // topic by message group
	for i := range 16 {
		topic := createTopic(t, at, 1, map[string]string{"cleanup.policy": "compact"})
		topics = append(topics, topic)
		of[fmt.Sprintf("order/aggregate-%02d", i)] = topic
	}
	transporttest.RunSink(t, transporttest.Destination{InOrder: true, Open: func(t *testing.T, a *transporttest.Responses) transporttest.Outlet {
		proxy, err := wireproxy.ListenFrames(at, readSized, func(l *wireproxy.Link) (up, down func([]byte)) {
			w := &produceWire{link: l, answers: a, asked: map[int32]*produced{}}
			return w.up, w.down
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, proxy.Addr())
		}
		sink := openSink(t, at, topics, pawlkafka.SinkConfig{TopicOf: func(m pawl.Message) string { return of[m.Group] }}, kgo.Dialer(dial),
			kgo.ProducerBatchCompression(kgo.NoCompression()))
		return transporttest.Outlet{Sink: sink, Cut: proxy.Cut, Refused: func(m pawl.Message) pawl.Message {
			m.AggregateID = ""
			return m
		}}
	}})
}

// Concurrent calls share a batch, and Kafka refuses a batch as a whole. A message is charged for a
// refusal only if it was sent alone. The topic is compacted and refuses records without a key.
func TestSink_RefusalChargesOneMessage(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic := createTopic(t, at, 1, map[string]string{"cleanup.policy": "compact"})
	sink := openSink(t, at, []string{topic}, pawlkafka.SinkConfig{}, kgo.ProducerLinger(20*time.Millisecond))
	shared := 0
	for round := range 50 {
		errs := make([]error, 8)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				m := event(fmt.Sprint(round, "-", i), fmt.Sprint("order-", i), []byte("x"))
				if i == 3 {
					m.AggregateID = ""
				}
				errs[i] = errors.Join(sink.Publish(t.Context(), []pawl.Message{m})...)
			})
		}
		all.Wait()
		for i, err := range errs {
			if err == nil || i == 3 {
				continue
			}
			if shared++; !pawl.IsSinkDown(err) {
				t.Fatalf("message %d is charged for the refusal of another one: %v", i, err)
			}
		}
	}
	if shared == 0 {
		t.Error("no message shared a batch with the one that Kafka refuses")
	}
	keyless := event("alone", "", []byte("x"))
	if err := sink.Publish(t.Context(), []pawl.Message{keyless})[0]; err == nil || pawl.IsSinkDown(err) {
		t.Errorf("alone: %v", err)
	}
}

// readSized reads a request or a response, including its size prefix.
func readSized(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, 4+int(binary.BigEndian.Uint32(head)))
	_, err = io.ReadFull(r, frame)
	return frame, err
}

// A produceWire observes a connection and holds produce responses until the test releases them.
type produceWire struct {
	link    *wireproxy.Link
	answers *transporttest.Responses

	mu    sync.Mutex
	asked map[int32]*produced // by correlation id
}

// A produced is a produce request without a response yet.
type produced struct {
	version int16
	ids     map[string][]string // message ids, by topic and partition
}

const produceKey = 0

func (w *produceWire) up(frame []byte) {
	if binary.BigEndian.Uint16(frame[4:]) == produceKey {
		request := kmsg.NewPtrProduceRequest()
		request.SetVersion(int16(binary.BigEndian.Uint16(frame[6:])))
		client := max(int(int16(binary.BigEndian.Uint16(frame[12:]))), 0)
		body := frame[14+client:]
		if request.IsFlexible() {
			body = body[1:] // no tags
		}
		if err := request.ReadFrom(body); err != nil {
			panic(err)
		}
		p := &produced{request.Version, map[string][]string{}}
		for _, topic := range request.Topics {
			for _, one := range topic.Partitions {
				at := fmt.Sprint(topic.Topic, topic.TopicID, one.Partition)
				for _, id := range eventIDs(one.Records) {
					p.ids[at] = append(p.ids[at], id)
					w.answers.Arrived()
				}
			}
		}
		w.mu.Lock()
		w.asked[int32(binary.BigEndian.Uint32(frame[8:]))] = p
		w.mu.Unlock()
	}
	w.link.ToServer(frame)
}

// eventIDs finds the event's id in each record of an uncompressed batch. The header's name is
// followed by the value's length as a varint, and by the value.
func eventIDs(batch []byte) (ids []string) {
	name := []byte(pawl.HeaderEventID)
	for {
		at := bytes.Index(batch, name)
		if at < 0 {
			return ids
		}
		batch = batch[at+len(name):]
		length, n := binary.Varint(batch)
		ids = append(ids, string(batch[n:n+int(length)]))
	}
}

func (w *produceWire) down(frame []byte) {
	correlation := int32(binary.BigEndian.Uint32(frame[4:]))
	w.mu.Lock()
	p := w.asked[correlation]
	delete(w.asked, correlation)
	w.mu.Unlock()
	if p == nil {
		w.link.ToClient(frame)
		return
	}
	answer := kmsg.NewPtrProduceResponse()
	answer.SetVersion(p.version)
	head := frame[4:8:8]
	if answer.IsFlexible() {
		head = frame[4:9:9] // no tags
	}
	if err := answer.ReadFrom(frame[4+len(head):]); err != nil {
		panic(err)
	}
	var all, confirmed []string
	for i := range answer.Topics {
		topic := &answer.Topics[i]
		var said []kmsg.ProduceResponseTopicPartition
		for _, one := range topic.Partitions {
			ids := p.ids[fmt.Sprint(topic.Topic, topic.TopicID, one.Partition)]
			all = append(all, ids...)
			if w.omits(ids) {
				continue
			}
			said = append(said, one)
			err := kerr.ErrorForCode(one.ErrorCode)
			if err == nil || err == kerr.DuplicateSequenceNumber { // a duplicate is in the log
				confirmed = append(confirmed, ids...)
			}
		}
		topic.Partitions = said
	}
	body := answer.AppendTo(head)
	frame = append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	w.answers.Send(all, confirmed, func() { w.link.ToClient(frame) })
}

// omits reports whether the response must omit the batch with one of these messages.
func (w *produceWire) omits(ids []string) bool {
	for _, id := range ids {
		if w.answers.Omits(id) {
			return true
		}
	}
	return false
}
