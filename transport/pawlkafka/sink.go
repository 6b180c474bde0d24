package pawlkafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// SinkConfig shapes a [Sink]. The zero value is fit for production.
type SinkConfig struct {
	// TopicOf chooses the topic of an event, such as one for each type of aggregate. It must name one of the topics that were given to
	// OpenSink, always the same for the events of one aggregate, or their order is lost. Default: the first of the topics.
	TopicOf func(m pawl.Message) string
	// KeyHeader is the header for the event's id. Default Idempotency-Key, which a [Source] looks at.
	KeyHeader string
	// Hooks receive error where a topic may lose what it has confirmed. The zero value logs it to slog.Default.
	Hooks pawl.Hooks
}

// A Sink publishes the events of an outbox to topics: give it to outbox.Config. Its client is its own: end it with Close.
//
// The aggregate's id is the key of the record, so the events of an aggregate are in one partition, in their order. An event without an
// aggregate has no key, and any partition. Headers are those of the CloudEvents binding for Kafka (ce_id, ce_source, …, content-type), pawl-event-id,
// the event's id as its key, and the event's own. The timestamp of a record is when it was sent: Kafka deletes by it.
//
// A record is accepted when all replicas in sync have it. Its producer is idempotent, which keeps the order and drops what the client itself
// sends twice. It does not know what an earlier process has sent, nor what was sent before a context ended: after that an event may be in
// the log twice, and its receiver recognises the id.
type Sink struct {
	client *kgo.Client
	topics []string
	config SinkConfig
	limits map[string]int // octets of a record, by topic

	mu        sync.Mutex
	confirmed map[topicPartition]bool // partitions in which the broker knows our producer
	traffic   map[string]traffic      // by topic
}

// traffic counts records of a topic.
type traffic struct{ sent, answered int64 }

var (
	_ pawl.BatchSink = (*Sink)(nil)
	_ pawl.Carrier   = (*Sink)(nil)
	_ pawl.Broker    = (*Sink)(nil)
)

// publishSlack is how long a Publish may take longer than its context: the client answers within it, and if not it is left behind.
const publishSlack = time.Second

// OpenSink makes a client of opts, which say how the cluster is reached, and checks that the topics exist; none is ever created. It reads
// how large a record each takes: if you raise max.message.bytes of a topic, open the sink again.
//
// The sink sets acks=all, idempotence, and that a context ends the wait for a record that is in flight. Options that would break
// these are refused. Set min.insync.replicas of the topics to 2 at least, with 3 replicas: with 1, a confirmed record is lost with its leader.
func OpenSink(ctx context.Context, opts []kgo.Opt, topics []string, cfg SinkConfig) (*Sink, error) {
	const op = "kafka.sink"
	if len(topics) == 0 || slices.Contains(topics, "") {
		return nil, adapter.BadArgument(op, "the topics are %q: name at least one", topics)
	}
	cfg.KeyHeader = cmp.Or(cfg.KeyHeader, DefaultKeyHeader)
	s := &Sink{topics: topics, config: cfg, limits: map[string]int{}, confirmed: map[topicPartition]bool{}, traffic: map[string]traffic{}}
	if s.config.TopicOf == nil {
		s.config.TopicOf = func(pawl.Message) string { return topics[0] }
	}
	limits, err := s.ask(ctx, opts)
	if err != nil {
		return nil, wrap(op, strings.Join(topics, ", "), err)
	}
	s.limits = limits
	s.client, err = kgo.NewClient(s.options(opts)...)
	if err != nil {
		return nil, &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: err}
	}
	if err := s.inForce(op); err != nil {
		s.client.Close()
		return nil, err
	}
	return s, nil
}

// options are ours around theirs.
func (s *Sink) options(theirs []kgo.Opt) []kgo.Opt {
	all := []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks()), kgo.AllowIdempotentProduceCancellation(), kgo.ProducerLinger(2 * time.Millisecond)}
	return append(append(all, theirs...),
		kgo.RecordPartitioner(newPartitioner()),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
			if limit, known := s.limits[topic]; known {
				return int32(limit)
			}
			return defaultLimit
		}))
}

// defaultLimit is max.message.bytes where a broker does not say.
const defaultLimit = 1_048_588

// inForce refuses options that break the sink's promises.
func (s *Sink) inForce(op string) error {
	c := s.client
	acks, _ := c.OptValue(kgo.RequiredAcks).(kgo.Acks)
	return refuse(op, append(commonRules(c),
		rule{"RequiredAcks", acks == kgo.AllISRAcks(), "leave it out: a record counts once all replicas in sync have it"},
		rule{"DisableIdempotentWrite", !isSet(c, kgo.DisableIdempotentWrite), "leave it out: without it, retries of the client reorder records"},
		rule{"ConsumerGroup", !isSet(c, kgo.ConsumerGroup), "leave it out: a sink receives nothing"},
		rule{"ConsumeTopics", !isSet(c, kgo.ConsumeTopics), "leave it out: a sink receives nothing"},
		rule{"DefaultProduceTopic", !isSet(c, kgo.DefaultProduceTopic), "pass the topics to OpenSink"},
		rule{"ManualFlushing", !isSet(c, kgo.ManualFlushing), "leave it out: the sink flushes nothing by hand"},
	))
}

// ask reads what the topics take, and warns where they may lose what they confirmed. Its client produces nothing.
func (s *Sink) ask(ctx context.Context, opts []kgo.Opt) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asking, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, &pawl.Error{Op: "kafka.sink", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	defer asking.Close()
	admin := kadm.NewClient(asking)
	details, err := admin.ListTopics(ctx, s.topics...)
	if err != nil {
		return nil, err
	}
	limits := map[string]int{}
	for _, topic := range s.topics {
		if err := details[topic].Err; err != nil {
			return nil, &topicError{topic, err}
		}
		limits[topic] = defaultLimit
	}
	settings, err := admin.DescribeTopicConfigs(ctx, s.topics...)
	if err != nil {
		return nil, err
	}
	for _, one := range settings {
		if one.Err != nil { // a user that may write need not be allowed to read settings
			continue
		}
		for _, c := range one.Configs {
			var n int
			switch _, err := fmt.Sscan(c.MaybeValue(), &n); {
			case err != nil:
			case c.Key == "max.message.bytes":
				limits[one.Name] = min(max(n, 512), 1<<30)
			case c.Key == "min.insync.replicas" && n < 2 && replicas(details[one.Name]) > 1:
				s.config.Hooks.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "kafka.sink", Scope: one.Name, Err: fmt.Errorf("topic %s confirms a record "+
					"that only its leader has, and loses it with the leader: set min.insync.replicas to 2", one.Name)})
			}
		}
	}
	return limits, nil
}

func replicas(d kadm.TopicDetail) (most int) {
	for _, p := range d.Partitions {
		most = max(most, len(p.Replicas))
	}
	return most
}

// Close ends the sink's client. Call it when no Publish runs any more. It returns nil.
func (s *Sink) Close() error {
	s.client.Close()
	return nil
}

// Broker returns kafka and the names of the topics, for traces.
func (s *Sink) Broker() (system, destination string) { return "kafka", strings.Join(s.topics, ",") }

// Carries returns why Kafka can never carry the event octet for octet: it is larger than its topic takes, with its headers; a header of
// its own has the name of the key header; or TopicOf names a topic that was not given to OpenSink.
func (s *Sink) Carries(m pawl.Message) error {
	_, err := s.record(m)
	return err
}

// record makes the record of an event.
func (s *Sink) record(m pawl.Message) (*kgo.Record, error) {
	topic, err := callback.Get("SinkConfig.TopicOf", func() string { return s.config.TopicOf(m) })
	if err != nil {
		return nil, err
	}
	r := &kgo.Record{Topic: topic, Value: m.Payload}
	limit, known := s.limits[r.Topic]
	if !known {
		return nil, fmt.Errorf("TopicOf names topic %q, which was not given to OpenSink", r.Topic)
	}
	if r.Value == nil {
		r.Value = []byte{} // null would be a tombstone
	}
	if m.AggregateID != "" {
		r.Key = []byte(m.AggregateID)
	}
	headers := adapter.RenameEvent(m.Headers, adapter.EventKafka)
	if value, own := headers[s.config.KeyHeader]; own && value != m.ID {
		return nil, fmt.Errorf("the header %q has the name of the header that carries the event's id", s.config.KeyHeader)
	}
	headers[s.config.KeyHeader], headers[pawl.HeaderEventID] = m.ID, m.ID
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(headers[name])})
	}
	if size := batchSize(r); size > limit {
		return nil, fmt.Errorf("it has %d octets with its headers, topic %s takes %d: raise max.message.bytes, or store the payload and send a reference",
			size, r.Topic, limit)
	}
	return r, nil
}

// batchSize is at least what a batch of this record alone takes, uncompressed: 61 octets of the batch, and at most 5 for each length and 21
// for the record itself.
func batchSize(r *kgo.Record) int {
	size := 61 + 21 + 5 + len(r.Key) + 5 + len(r.Value) + 5
	for _, h := range r.Headers {
		size += 5 + len(h.Key) + 5 + len(h.Value)
	}
	return size
}

// Publish implements [pawl.Sink]. An error that is not about one message alone is the sink's failure and charged to no event. A message whose
// outcome is not known when ctx ends may be in the log, and is published again.
//
// publish: a crash before the broker has the records costs another try, after it the same records once more.
func (s *Sink) Publish(ctx context.Context, ms []pawl.Message) []error {
	errs := make([]error, len(ms))
	if err := fault.At("kafka.publish.before"); err != nil {
		for i := range errs {
			errs[i] = pawl.SinkDown(err)
		}
		return errs
	}
	var records []*kgo.Record
	var places []int
	for i, m := range ms {
		r, err := s.record(m)
		if err != nil {
			errs[i] = misfit(err)
			continue
		}
		records, places = append(records, r), append(places, i)
	}
	f := newFlight(len(records))
	s.send(ctx, f, records)
	for i, err := range f.gather(ctx) {
		errs[places[i]] = s.failure(err, f.alone[i])
	}
	if err := fault.At("kafka.publish.after"); err != nil { // the answers are lost
		for i := range errs {
			errs[i] = pawl.SinkDown(err)
		}
	}
	return errs
}

// PublishBatch implements [pawl.BatchSink]. The messages of a call go to one partition, where the
// broker takes their records in order or not at all: each batch of the producer carries the number of
// its first record, and one that does not follow the last accepted one is refused. The broker knows
// the last number once it has taken one record of this producer, so in a new partition the first
// record goes alone.
func (s *Sink) PublishBatch(ctx context.Context, ms []pawl.Message) (accepted int, err error) {
	if err := fault.At("kafka.publish.before"); err != nil {
		return 0, pawl.SinkDown(err)
	}
	records := make([]*kgo.Record, 0, len(ms))
	var unfit error
	for _, m := range ms {
		r, err := s.record(m)
		if err != nil {
			unfit = misfit(err)
			break
		}
		records = append(records, r)
	}
	if len(records) == 0 {
		return 0, unfit
	}
	within, one := withOnePartition(ctx)
	f := newFlight(len(records))
	s.send(within, f, records[:1])
	if !s.knows(records[0].Topic, one) && f.gather(ctx)[0] != nil {
		return 0, s.failure(f.errs[0], f.alone[0])
	}
	s.send(within, f, records[1:])
	answers := f.gather(ctx)
	if err := fault.At("kafka.publish.after"); err != nil { // the answers are lost
		return 0, pawl.SinkDown(err)
	}
	for i, err := range answers {
		if err != nil {
			return accepted, s.failure(err, f.alone[i])
		}
		accepted++
	}
	return accepted, unfit
}

// knows reports whether the broker has taken a record of ours in the partition of a PublishBatch.
func (s *Sink) knows(topic string, one *onePartition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed[topicPartition{topic, one.number.Load()}]
}

// A flight is records on their way.
type flight struct {
	answers  chan answer
	errs     []error // of each record; errUnanswered until its answer is there
	alone    []bool  // no other record of its topic was on its way with it
	sent     int
	answered int
}

type answer struct {
	of    int
	err   error
	alone bool
}

func newFlight(n int) *flight {
	f := &flight{answers: make(chan answer, n), errs: make([]error, n), alone: make([]bool, n)}
	for i := range f.errs {
		f.errs[i] = errUnanswered
	}
	return f
}

// send hands records to the client, behind those that it was handed before.
func (s *Sink) send(ctx context.Context, f *flight, records []*kgo.Record) {
	for _, r := range records {
		of := f.sent
		f.sent++
		before := s.depart(r.Topic)
		s.client.Produce(ctx, r, func(r *kgo.Record, err error) {
			f.answers <- answer{of, err, s.arrive(r, err, before)}
		})
	}
}

// depart counts a record that is sent, and returns what was on its way before.
func (s *Sink) depart(topic string) traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.traffic[topic]
	s.traffic[topic] = traffic{before.sent + 1, before.answered}
	return before
}

// arrive counts a record that is answered, and reports whether no other of its topic was on its way
// with it.
func (s *Sink) arrive(r *kgo.Record, err error, before traffic) (alone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.traffic[r.Topic]
	s.traffic[r.Topic] = traffic{now.sent, now.answered + 1}
	if err == nil {
		s.confirmed[topicPartition{r.Topic, r.Partition}] = true
	}
	return before.sent == before.answered && now.sent == before.sent+1
}

// gather waits for the answers to what was sent and returns all errors. It returns soon after ctx ends.
func (f *flight) gather(ctx context.Context) []error {
	done := ctx.Done()
	var late <-chan time.Time
	for f.answered < f.sent {
		select {
		case a := <-f.answers:
			f.errs[a.of], f.alone[a.of] = a.err, a.alone
			f.answered++
		case <-done:
			done, late = nil, time.After(publishSlack)
		case <-late:
			return f.errs
		}
	}
	return f.errs
}

var errUnanswered = errors.New("the broker has not answered: the record may be in the log")

// failure says what an error of the client is about. One record that is refused fails others of its
// partition with the same error, also those of other calls, so among several nothing tells which it
// was about: the relay publishes each alone then.
func (s *Sink) failure(err error, alone bool) error {
	if err == nil {
		return nil
	}
	wrapped := wrap("kafka.sink", strings.Join(s.topics, ", "), err)
	if alone && aboutRecord(err) {
		return wrapped
	}
	return pawl.SinkDown(wrapped)
}

// aboutRecord recognises a refusal of what a batch holds.
func aboutRecord(err error) bool {
	for _, about := range []error{kerr.MessageTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.CorruptMessage, kerr.RecordListTooLarge} {
		if errors.Is(err, about) {
			return true
		}
	}
	return false
}

// misfit is the end of an event of which no message can be made. A panic says nothing of the next
// attempt, and is charged.
func misfit(err error) error {
	failure := &pawl.Error{Op: "kafka.sink", Err: err}
	if callback.Panicked(err) {
		return failure
	}
	return pawl.Final(failure)
}
