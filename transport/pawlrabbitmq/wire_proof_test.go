//go:build proof

package pawlrabbitmq_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// Each confirmation reaches its own message, in any order of confirmations and of waiting calls.
// RabbitMQ itself confirms; a proxy delays it.
func TestSink_Answers(t *testing.T) {
	t.Parallel()
	transporttest.RunSink(t, destination(pawlrabbitmq.SinkConfig{}))
}

// destination describes exchanges on the shared server for the suite.
func destination(cfg pawlrabbitmq.SinkConfig) transporttest.Destination {
	return transporttest.Destination{Named: true, Open: func(t *testing.T, a *transporttest.Responses) transporttest.Outlet {
		o := newOutlet(t, sharedServer(t), quorum(), pawlrabbitmq.SinkConfig{})
		o.must(o.ch.QueueBind(o.queue, "placed", o.exchange, false, nil))
		proxy, err := wireproxy.ListenFrames(o.server.Addr(), readFrame, func(l *wireproxy.Link) (up, down func([]byte)) {
			w := &wire{link: l, answers: a, tags: map[uint16]uint64{}, open: map[uint16]map[uint64]string{}, back: map[uint16]map[string][]byte{}}
			return w.up, w.down
		})
		o.must(err)
		t.Cleanup(proxy.Close)
		patient := pawlrabbitmq.URLConfig(urlOf(proxy.Addr()), amqp.Config{Heartbeat: time.Minute})
		sink, err := pawlrabbitmq.OpenSink(t.Context(), patient, o.exchange, cfg)
		o.must(err)
		t.Cleanup(func() { _ = sink.Close() })
		return transporttest.Outlet{Sink: sink, Cut: proxy.Cut, Refused: func(m pawl.Message) pawl.Message {
			m.Type = "nowhere." + m.ID // no queue is bound for it
			return m
		}}
	}}
}

// A relay may publish an event again while an earlier copy is in flight. Each copy that RabbitMQ
// returns has an error, though it is confirmed too.
func TestSink_EachCopyIsReturned(t *testing.T) {
	t.Parallel()
	o := newOutlet(t, sharedServer(t), quorum(), pawlrabbitmq.SinkConfig{})
	copies := make([]pawl.Message, 50)
	for i := range copies {
		copies[i] = typed("1", "nowhere")
	}
	for i, err := range o.sink.Publish(t.Context(), copies) {
		if err == nil {
			t.Errorf("copy %d counts as published", i)
		}
	}
}

// A message that RabbitMQ refuses for its content ends the channel. Other calls are not charged.
func TestSink_ARefusalIsOfOneMessage(t *testing.T) {
	t.Parallel()
	o := newOutlet(t, sharedServer(t), quorum(), pawlrabbitmq.SinkConfig{})
	large := event("large")
	large.Payload = make([]byte, mostOctets+1)
	interrupted := 0
	for range 20 {
		var all sync.WaitGroup
		errs := make([]error, 16)
		for i := range errs {
			all.Go(func() {
				if i == len(errs)/2 {
					o.sink.Publish(t.Context(), []pawl.Message{large})
				}
				for n := 0; n < 20 && errs[i] == nil; n++ {
					errs[i] = errors.Join(o.sink.Publish(t.Context(), events(fmt.Sprint(i, "-", n)))...)
				}
			})
		}
		all.Wait()
		for _, err := range errs {
			if err == nil {
				continue
			}
			if interrupted++; !pawl.IsSinkDown(err) {
				t.Fatalf("charged for another message: %v", err)
			}
		}
	}
	if interrupted == 0 {
		t.Error("no message was on its way when the channel ended")
	}
}

// readFrame reads a frame of AMQP 0-9-1, or the client's eight-octet protocol header.
func readFrame(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(8)
	if err != nil {
		return nil, err
	}
	size := 8
	if !bytes.HasPrefix(head, []byte("AMQP")) {
		size = 7 + int(binary.BigEndian.Uint32(head[3:])) + 1
	}
	frame := make([]byte, size)
	_, err = io.ReadFull(r, frame)
	return frame, err
}

// Class and method numbers.
const (
	confirmSelect = 85<<16 | 10
	basicPublish  = 60<<16 | 40
	basicReturn   = 60<<16 | 50
	basicAck      = 60<<16 | 80
	basicNack     = 60<<16 | 120
)

// A wire is a proxy that holds back confirmations. A return passes with its confirmation.
type wire struct {
	link    *wireproxy.Link
	answers *transporttest.Responses

	mu         sync.Mutex
	tags       map[uint16]uint64            // the last of each channel
	open       map[uint16]map[uint64]string // ids of unconfirmed messages
	back       map[uint16]map[string][]byte // frames of returns, by the id
	returning  []byte                       // frames of an incomplete return
	returnedID string
}

func method(frame []byte) int {
	if frame[0] != 1 {
		return 0
	}
	return int(binary.BigEndian.Uint32(frame[7:]))
}

func channelOf(frame []byte) uint16 { return binary.BigEndian.Uint16(frame[1:]) }

func (w *wire) up(frame []byte) {
	w.mu.Lock()
	c := channelOf(frame)
	switch {
	case frame[0] == 'A':
	case method(frame) == confirmSelect:
		w.tags[c], w.open[c], w.back[c] = 0, map[uint64]string{}, map[string][]byte{}
	case method(frame) == basicPublish:
		w.tags[c]++
	case frame[0] == 2: // the content header
		w.open[c][w.tags[c]] = messageID(frame)
		w.mu.Unlock()
		w.answers.Arrived()
		w.mu.Lock()
	}
	w.mu.Unlock()
	w.link.ToServer(frame)
}

func (w *wire) down(frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := channelOf(frame)
	switch m := method(frame); {
	case m == basicReturn, len(w.returning) > 0:
		w.returned(c, frame)
	case m == basicAck, m == basicNack:
		tag, multiple := binary.BigEndian.Uint64(frame[11:]), frame[19]&1 == 1
		for _, one := range sortedTags(w.open[c]) {
			if one == tag || multiple && one < tag {
				w.confirm(c, one, m == basicAck)
			}
		}
	default:
		w.link.ToClient(frame)
	}
}

func sortedTags(open map[uint64]string) (tags []uint64) {
	for tag := range open {
		tags = append(tags, tag)
	}
	slices.Sort(tags)
	return tags
}

// returned collects the frames of a return: method, header, and the body, which fits one frame.
func (w *wire) returned(c uint16, frame []byte) {
	w.returning = append(w.returning, frame...)
	switch frame[0] {
	case 2:
		w.returnedID = messageID(frame)
	case 3:
		w.back[c][w.returnedID] = w.returning
		w.returning = nil
	}
}

// confirm forwards a confirmation of one message, after the message's return if there is one.
func (w *wire) confirm(c uint16, tag uint64, ack bool) {
	id := w.open[c][tag]
	delete(w.open[c], tag)
	frames := w.back[c][id]
	delete(w.back[c], id)
	confirmed := []string{id}
	code := byte(80)
	if !ack {
		code = 120
	}
	if !ack || frames != nil {
		confirmed = nil
	}
	one := []byte{1, byte(c >> 8), byte(c), 0, 0, 0, 13, 0, 60, 0, code}
	one = append(append(binary.BigEndian.AppendUint64(one, tag), 0), 0xCE)
	w.answers.Send([]string{id}, confirmed, func() { w.link.ToClient(append(frames, one...)) })
}

// messageID reads message-id from a content header. Properties before it have the higher flags.
func messageID(frame []byte) string {
	p := frame[7+12:]
	flags := binary.BigEndian.Uint16(p)
	p = p[2:]
	short := func() string {
		n := int(p[0])
		text := string(p[1 : 1+n])
		p = p[1+n:]
		return text
	}
	for bit := 15; bit >= 7; bit-- {
		if flags&(1<<bit) == 0 {
			continue
		}
		switch bit {
		case 13: // headers
			p = p[4+binary.BigEndian.Uint32(p):]
		case 12, 11: // delivery-mode, priority
			p = p[1:]
		case 7:
			return short()
		default:
			short()
		}
	}
	return ""
}
