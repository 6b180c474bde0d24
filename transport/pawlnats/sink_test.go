package pawlnats_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

func (f *fixture) sink(cfg pawlnats.SinkConfig) *pawlnats.Sink {
	f.Helper()
	if cfg.Subject == "" && cfg.SubjectOf == nil {
		cfg.Subject = f.stream + ".events"
	}
	s, err := pawlnats.OpenSink(f.Context(), f.js, f.stream, cfg)
	f.must(err)
	return s
}

func event(id string, payload []byte) pawl.Message {
	return pawl.Message{ID: id, Type: "OrderPlaced", AggregateType: "order", AggregateID: id, Group: "order-" + id, Time: time.Now(), Payload: payload,
		Headers: map[string]string{"ce-id": id, "ce-source": "shop", "ce-specversion": "1.0", "ce-type": "OrderPlaced", pawl.HeaderEventID: id,
			"tenant": "größe", "empty": ""}}
}

// stored returns how many messages the stream holds.
func (f *fixture) stored() uint64 {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := f.js.Stream(ctx, f.stream)
	f.must(err)
	return s.CachedInfo().State.Msgs
}

// A source receives a published event unchanged, with its id as key, its subject and headers.
func TestSink_ArrivesAsItWas(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	sink := f.sink(pawlnats.SinkConfig{SubjectOf: pawlnats.SubjectByType(f.stream)})
	if system, destination := sink.Broker(); system != "nats" || destination != f.stream {
		t.Errorf("broker %s %s", system, destination)
	}
	bodies := [][]byte{{}, {0, 255, 254, '\r', '\n'}, []byte("w\u00f6rld"), bytes.Repeat([]byte{7}, 1<<19)}
	var ms []pawl.Message
	for i, body := range bodies {
		ms = append(ms, event(fmt.Sprint("e", i), body))
		f.must(sink.Carries(ms[i]))
	}
	if errs := sink.Publish(t.Context(), ms); errs != nil {
		t.Fatal(errs)
	}
	got := map[string]pawl.Delivery{}
	for _, d := range f.get(len(bodies)) {
		got[d.Key] = d
	}
	for i, m := range ms {
		d := got[m.ID]
		if !bytes.Equal(d.Payload, bodies[i]) || d.Attributes[pawlnats.SubjectAttribute] != f.stream+".order.OrderPlaced" || d.Log != f.stream || d.Offset == 0 {
			t.Errorf("%s: %d bytes, %+v", m.ID, len(d.Payload), d.Attributes)
		}
		for name, value := range m.Headers {
			if d.Attributes[name] != value {
				t.Errorf("%s: the header %s is %q, was %q", m.ID, name, d.Attributes[name], value)
			}
		}
	}
}

// JetStream compares only the id: it confirms and drops a second copy, and also another body.
func TestSink_DuplicateIsSuccess(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	sink := f.sink(pawlnats.SinkConfig{})
	for _, body := range []string{"first", "first", "another"} {
		if errs := sink.Publish(t.Context(), []pawl.Message{event("e1", []byte(body))}); errs != nil {
			t.Fatal(errs)
		}
	}
	if n := f.stored(); n != 1 {
		t.Errorf("%d are stored", n)
	}
	if d := f.get(1)[0]; string(d.Payload) != "first" {
		t.Errorf("stored is %q", d.Payload)
	}
}

// The largest message that Carries allows is accepted, and one byte more is refused before sending.
// The same holds for the stream's own limit, and with headers.
func TestSink_KnowsTheLimits(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for _, c := range []struct {
		name   string
		stream jetstream.StreamConfig
		build  func(n int) pawl.Message
		limit  string
	}{
		{"server", jetstream.StreamConfig{}, func(n int) pawl.Message { return event("e", make([]byte, n)) }, "max_payload"},
		{"stream", jetstream.StreamConfig{MaxMsgSize: 2000}, func(n int) pawl.Message { return event("e", make([]byte, n)) }, "max-msg-size"},
		{"headers", jetstream.StreamConfig{}, func(n int) pawl.Message {
			m := event("e", nil)
			m.Headers["long"] = strings.Repeat("x", n)
			return m
		}, "headers have"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, options{server: server, stream: c.stream})
			sink := f.sink(pawlnats.SinkConfig{})
			low, high := 0, 1<<20+1
			for low+1 < high { // finds the largest that it carries
				if mid := (low + high) / 2; sink.Carries(c.build(mid)) == nil {
					low = mid
				} else {
					high = mid
				}
			}
			if err := sink.Carries(c.build(high)); err == nil || !strings.Contains(err.Error(), c.limit) {
				t.Errorf("one byte more: %v", err)
			}
			if errs := sink.Publish(t.Context(), []pawl.Message{c.build(low)}); errs != nil {
				t.Errorf("%d bytes: %v", low, errs)
			}
			errs := sink.Publish(t.Context(), []pawl.Message{event("small", nil), c.build(high)})
			if len(errs) != 2 || errs[0] != nil || !pawl.IsFinal(errs[1]) {
				t.Errorf("next to a message that is too large: %v", errs)
			}
			m := nats.NewMsg(f.stream + ".events") // the server's own answer to one byte more
			big := c.build(high)
			m.Data = big.Payload
			for name, value := range big.Headers {
				m.Header[name] = []string{value}
			}
			for _, name := range []string{"Idempotency-Key", "Nats-Msg-Id"} {
				m.Header.Set(name, "other"[:1])
			}
			if _, err := f.js.PublishMsg(t.Context(), m, jetstream.WithExpectStream(f.stream)); err == nil {
				t.Error("the server accepts one byte more than the sink allows")
			}
		})
	}
}

// Messages that NATS would change or obey are refused, and never sent.
func TestSink_RefusesWhatNATSWouldChange(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	sink := f.sink(pawlnats.SinkConfig{SubjectOf: func(m pawl.Message) string { return m.Headers["to"] }})
	good := f.stream + ".events"
	for name, c := range map[string]struct{ to, header, value, says string }{
		"wildcard":       {f.stream + ".*", "a", "b", "no subject"},
		"empty token":    {f.stream + "..x", "a", "b", "no subject"},
		"blank":          {f.stream + ".a b", "a", "b", "no subject"},
		"system":         {"$JS.API.INFO", "a", "b", "subject of the server"},
		"header name":    {good, "a b", "b", "no header"},
		"a command":      {good, "Nats-Rollup", "all", "command to the server"},
		"in lower case":  {good, "nats-rollup", "all", "command to the server"},
		"line end":       {good, "a", "b\nc", "line end"},
		"white space":    {good, "a", " b", "white space"},
		"not UTF-8":      {good, "a", "\xff", "not UTF-8"},
		"the key's name": {good, "Idempotency-Key", "mine", "event's id"},
		"status":         {good, "Status", "404", "status of the server"},
	} {
		m := event("e", nil)
		m.Headers["to"], m.Headers[c.header] = c.to, c.value
		if err := sink.Carries(m); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if errs := sink.Publish(t.Context(), []pawl.Message{m}); len(errs) != 1 || !pawl.IsFinal(errs[0]) {
			t.Errorf("%s: %v", name, errs)
		}
	}
	if n := f.stored(); n != 0 {
		t.Errorf("%d are stored", n)
	}
}

// OpenSink refuses a stream with no_ack, which confirms nothing, and names the setting. Once the
// stream confirms, the sink publishes to it.
func TestSink_NeedsConfirmations(t *testing.T) {
	t.Parallel()
	f := setup(t, options{stream: jetstream.StreamConfig{NoAck: true}})
	cfg := pawlnats.SinkConfig{Subject: f.stream + ".events"}
	if _, err := pawlnats.OpenSink(t.Context(), f.js, f.stream, cfg); pawl.CodeOf(err) != pawl.CodeArgumentInvalid || !strings.Contains(err.Error(), "no_ack") {
		t.Fatalf("got %v", err)
	}
	_, err := f.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: f.stream, Subjects: []string{f.stream + ".>"}})
	f.must(err)
	if errs := f.sink(cfg).Publish(t.Context(), []pawl.Message{event("e1", nil)}); errs != nil {
		t.Error(errs)
	}
}

// OpenSink fails if the stream is missing or does not accept the fixed subject. A subject that the
// stream does not accept is charged to its event, not to the sink. Other events are published.
func TestSink_SubjectsOfTheStream(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	open := func(stream string, cfg pawlnats.SinkConfig) error {
		_, err := pawlnats.OpenSink(t.Context(), f.js, stream, cfg)
		return err
	}
	for says, err := range map[string]error{
		"does not exist (create it":   open("none", pawlnats.SinkConfig{Subject: "a"}),
		"does not accept the subject": open(f.stream, pawlnats.SinkConfig{Subject: "other.events"}),
		"one of Subject":              open(f.stream, pawlnats.SinkConfig{}),
		"no subject to publish":       open(f.stream, pawlnats.SinkConfig{Subject: "a..b"}),
		"name of the stream is empty": open("", pawlnats.SinkConfig{Subject: "a"}),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	other := fmt.Sprintf("T%d", names.Add(1))
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: other, Subjects: []string{other + ".>"}})
	f.must(err)
	sink := f.sink(pawlnats.SinkConfig{SubjectOf: func(m pawl.Message) string { return m.AggregateType }})
	var ms []pawl.Message
	for i, subject := range []string{f.stream + ".a", "nowhere.a", other + ".a"} {
		m := event(fmt.Sprint("e", i), nil)
		m.AggregateType = subject
		ms = append(ms, m)
	}
	errs := sink.Publish(t.Context(), ms)
	if len(errs) != 3 || errs[0] != nil {
		t.Fatal(errs)
	}
	for _, err := range errs[1:] {
		if err == nil || pawl.IsFinal(err) || pawl.IsSinkDown(err) || !strings.Contains(err.Error(), "does not accept the subject") {
			t.Errorf("%v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = f.js.UpdateStream(ctx, jetstream.StreamConfig{Name: f.stream, Subjects: []string{f.stream + ".>", "nowhere.>"}})
	f.must(err)
	if errs := sink.Publish(t.Context(), ms[1:2]); errs != nil {
		t.Errorf("after an operator added the subject: %v", errs)
	}
}

// A full stream counts as a failure of the sink, and is charged to no event.
func TestSink_FullStreamIsDown(t *testing.T) {
	t.Parallel()
	f := setup(t, options{stream: jetstream.StreamConfig{MaxMsgs: 1, Discard: jetstream.DiscardNew}})
	sink := f.sink(pawlnats.SinkConfig{})
	if errs := sink.Publish(t.Context(), []pawl.Message{event("e1", nil)}); errs != nil {
		t.Fatal(errs)
	}
	if errs := sink.Publish(t.Context(), []pawl.Message{event("e2", nil)}); len(errs) != 1 || !pawl.IsSinkDown(errs[0]) {
		t.Errorf("%v", errs)
	}
}

// If the server hangs or is gone, Publish returns SinkDown when its context ends. It does not send
// the event later, unless under the same id.
func TestSink_ServerAway(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	sink := f.sink(pawlnats.SinkConfig{})
	publish := func(id string) (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if errs := sink.Publish(ctx, []pawl.Message{event(id, nil)}); errs != nil {
			err = errs[0]
		}
		return err
	}
	f.server.Freeze()
	if err := publish("frozen"); !pawl.IsSinkDown(err) {
		t.Errorf("a frozen server: %v", err)
	}
	f.server.Wake()
	f.server.Kill()
	if err := publish("killed"); !pawl.IsSinkDown(err) {
		t.Errorf("a killed server: %v", err)
	}
	f.must(f.server.Start(context.Background()))
	for _, id := range []string{"frozen", "killed"} {
		eventually(t, "published after the server is back: "+id, func() bool { return publish(id) == nil })
	}
	if n := f.stored(); n != 2 {
		t.Errorf("%d are stored", n)
	}
}

// A batch stops at the first event without a confirmation, and sends none after it.
func TestSink_BatchKeepsItsOrder(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	sink := f.sink(pawlnats.SinkConfig{})
	var ms []pawl.Message
	for i := range 10 {
		ms = append(ms, event(fmt.Sprint("e", i), nil))
	}
	ms[6].Headers["a b"] = "no header"
	n, err := sink.PublishBatch(t.Context(), ms)
	if n != 6 || !pawl.IsFinal(err) || f.stored() != 6 {
		t.Errorf("%d accepted, %d stored, %v", n, f.stored(), err)
	}
	if n, err := sink.PublishBatch(t.Context(), append(ms[:6:6], ms[7:]...)); n != 9 || err != nil || f.stored() != 9 {
		t.Errorf("%d accepted, %d stored, %v", n, f.stored(), err)
	}
	for i, d := range f.get(9) {
		if want := ms[map[bool]int{true: i, false: i + 1}[i < 6]].ID; d.Key != want {
			t.Errorf("place %d holds %s, want %s", i, d.Key, want)
		}
	}
}

// OpenSink refuses a closed connection, and one that would give up. The error has a hint.
func TestSink_ConnectionsThatGiveUp(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	limited := connect(t, f.server.Addr(), nats.MaxReconnects(60))
	_, err := pawlnats.OpenSink(t.Context(), limited, f.stream, pawlnats.SinkConfig{Subject: f.stream + ".a"})
	if !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "nats.MaxReconnects(-1)") {
		t.Error(err)
	}
}
