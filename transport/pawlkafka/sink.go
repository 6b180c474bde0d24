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

// SinkConfig configures a [Sink]. The zero value is fit for production.
type SinkConfig struct {
	// TopicOf chooses the topic of an event, such as one for each type of aggregate. It must return
	// one of the topics given to OpenSink. It must always return the same one for the events of one
	// aggregate, else their order is lost. Default: the first topic.
	TopicOf func(m pawl.Message) string
	// KeyHeader is the header for the event's id. Default Idempotency-Key, which a [Source] reads.
	KeyHeader string
	// Hooks receive error if a topic may lose confirmed records. The zero value logs to
	// slog.Default.
	Hooks pawl.Hooks
}

// A Sink publishes the events of an outbox to topics: pass it to outbox.Config. It owns its client.
//
// The record's key is the aggregate's id, so the events of an aggregate stay ordered in one
// partition. An event without an aggregate has no key and may go to any partition. The headers are
// those of the CloudEvents binding for Kafka (ce_id, ce_source, …, content-type), pawl-event-id,
// the key header with the event's id, and the event's own. The record's timestamp is the time of
// sending, because Kafka's retention uses it.
//
// A record is accepted when all in-sync replicas have it. The producer is idempotent, which keeps
// the order and drops the client's own retries. It cannot recognise records of an earlier process,
// or of a call whose context ended. The log may then hold an event twice; receivers recognise its
// id.
type Sink struct {
	client *kgo.Client
	topics []string
	config SinkConfig
	limits map[string]int // maximum record size in bytes, by topic

	mu sync.Mutex
	// Partitions in which the broker has accepted a record of this producer.
	confirmed map[topicPartition]bool
	traffic   map[string]traffic // by topic
}

type traffic struct{ sent, finished int64 }

var (
	_ pawl.BatchSink = (*Sink)(nil)
	_ pawl.Carrier   = (*Sink)(nil)
	_ pawl.Broker    = (*Sink)(nil)
)

// publishSlack is how long Publish waits for the client's result after its context ended.
const publishSlack = time.Second

// OpenSink creates a client from opts, which say how to reach the cluster. It checks that the
// topics exist; it never creates one. It reads the maximum record size of each topic: if you raise
// max.message.bytes, open the sink again.
//
// The sink sets acks=all, idempotence, and cancellation of records in flight. Options that would
// break these are refused. With 3 replicas, set min.insync.replicas to at least 2: with 1, a
// confirmed record is lost with its leader.
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

// options returns the caller's options between the sink's defaults and its fixed ones.
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

// defaultLimit is Kafka's default of max.message.bytes, used if the broker does not say.
const defaultLimit = 1_048_588

// inForce refuses options that break the sink's promises.
func (s *Sink) inForce(op string) error {
	c := s.client
	acks, _ := c.OptValue(kgo.RequiredAcks).(kgo.Acks)
	return refuse(op, append(commonRules(c),
		rule{"RequiredAcks", acks == kgo.AllISRAcks(), "leave it out: a record is accepted once all in-sync replicas have it"},
		rule{"DisableIdempotentWrite", !isSet(c, kgo.DisableIdempotentWrite), "leave it out: without it, retries of the client reorder records"},
		rule{"ConsumerGroup", !isSet(c, kgo.ConsumerGroup), "leave it out: a sink receives nothing"},
		rule{"ConsumeTopics", !isSet(c, kgo.ConsumeTopics), "leave it out: a sink receives nothing"},
		rule{"DefaultProduceTopic", !isSet(c, kgo.DefaultProduceTopic), "pass the topics to OpenSink"},
		rule{"ManualFlushing", !isSet(c, kgo.ManualFlushing), "leave it out: the sink never flushes manually"},
	))
}

// ask reads the topics' record limits, and warns if a topic may lose confirmed records. It uses a
// client of its own, which produces nothing.
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
		if one.Err != nil { // a user with Write need not be allowed to read settings
			continue
		}
		for _, c := range one.Configs {
			var n int
			switch _, err := fmt.Sscan(c.MaybeValue(), &n); {
			case err != nil:
			case c.Key == "max.message.bytes":
				limits[one.Name] = min(max(n, 512), 1<<30)
			case c.Key == "min.insync.replicas" && n < 2 && replicas(details[one.Name]) > 1:
				s.config.Hooks.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "kafka.sink", Scope: one.Name, Err: fmt.Errorf("topic %s confirms records "+
					"that only the leader has, and loses them with the leader: set min.insync.replicas to 2", one.Name)})
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

// Close closes the client. Call it after the last Publish has returned. It returns nil.
func (s *Sink) Close() error {
	s.client.Close()
	return nil
}

// Broker returns "kafka" and the comma-separated topics, for traces.
func (s *Sink) Broker() (system, destination string) { return "kafka", strings.Join(s.topics, ",") }

// Carries returns an error if Kafka can never carry the event unchanged:
//
//   - with its headers it exceeds the limit of its topic
//   - one of its headers has the name of the key header, with another value
//   - TopicOf names a topic that was not given to OpenSink
func (s *Sink) Carries(m pawl.Message) error {
	_, err := s.record(m)
	return err
}

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
		return nil, fmt.Errorf("it has %d bytes with its headers, topic %s allows %d: raise max.message.bytes, or store the payload and send a reference",
			size, r.Topic, limit)
	}
	return r, nil
}

// batchSize returns an upper bound for an uncompressed batch of only this record. It counts 61
// bytes for the batch, at most 21 for the record, and at most 5 for each length.
func batchSize(r *kgo.Record) int {
	size := 61 + 21 + 5 + len(r.Key) + 5 + len(r.Value) + 5
	for _, h := range r.Headers {
		size += 5 + len(h.Key) + 5 + len(h.Value)
	}
	return size
}

// Publish implements [pawl.Sink]. An error that is not about one message alone counts as a failure
// of the sink, and is charged to no event. A message whose outcome is unknown when ctx ends may be
// in the log, and is published again. A crash before the broker has the records costs another try;
// a crash after that costs duplicates.
func (s *Sink) Publish(ctx context.Context, ms []pawl.Message) []error {
	if err := fault.At("kafka.publish.before"); err != nil {
		return slices.Repeat([]error{pawl.SinkDown(err)}, len(ms))
	}
	errs := make([]error, len(ms))
	var records []*kgo.Record
	var indexes []int
	for i, m := range ms {
		r, err := s.record(m)
		if err != nil {
			errs[i] = misfit(err)
			continue
		}
		records, indexes = append(records, r), append(indexes, i)
	}
	f := newFlight(len(records))
	s.send(ctx, f, records)
	for i, err := range f.gather(ctx) {
		errs[indexes[i]] = s.failure(err, f.alone[i])
	}
	if err := fault.At("kafka.publish.after"); err != nil { // the results are lost
		return slices.Repeat([]error{pawl.SinkDown(err)}, len(ms))
	}
	return errs
}

// PublishBatch implements [pawl.BatchSink]. The messages of a call go to one partition, where the
// broker takes their records in order or not at all. Each producer batch carries a sequence number,
// and the broker refuses a batch that does not follow the last accepted one.
//
// The broker knows the last number only after it accepted one record of this producer. So in a new
// partition the first record is sent alone.
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
	errs := f.gather(ctx)
	if err := fault.At("kafka.publish.after"); err != nil { // the results are lost
		return 0, pawl.SinkDown(err)
	}
	for i, err := range errs {
		if err != nil {
			return accepted, s.failure(err, f.alone[i])
		}
		accepted++
	}
	return accepted, unfit
}

// knows reports whether the broker accepted a record of this producer in the call's partition.
func (s *Sink) knows(topic string, one *onePartition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed[topicPartition{topic, one.number.Load()}]
}

// A flight is a set of records that were sent and await their results.
type flight struct {
	results  chan result
	errs     []error // one per record; errUnanswered until answered
	alone    []bool  // no other record of its topic was in flight at the same time
	sent     int
	gathered int
}

type result struct {
	of    int
	err   error
	alone bool
}

func newFlight(n int) *flight {
	return &flight{results: make(chan result, n), errs: slices.Repeat([]error{errUnanswered}, n), alone: make([]bool, n)}
}

// send passes records to the client, after those that it passed before.
func (s *Sink) send(ctx context.Context, f *flight, records []*kgo.Record) {
	for _, r := range records {
		of := f.sent
		f.sent++
		before := s.depart(r.Topic)
		s.client.Produce(ctx, r, func(r *kgo.Record, err error) {
			f.results <- result{of, err, s.arrive(r, err, before)}
		})
	}
}

// depart counts a sent record and returns the topic's counts before it.
func (s *Sink) depart(topic string) traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.traffic[topic]
	s.traffic[topic] = traffic{before.sent + 1, before.finished}
	return before
}

// arrive counts an answered record, and reports whether it was in flight alone in its topic.
func (s *Sink) arrive(r *kgo.Record, err error, before traffic) (alone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.traffic[r.Topic]
	s.traffic[r.Topic] = traffic{now.sent, now.finished + 1}
	if err == nil {
		s.confirmed[topicPartition{r.Topic, r.Partition}] = true
	}
	return before.sent == before.finished && now.sent == before.sent+1
}

// gather waits for the results of all sent records, at most publishSlack beyond the end of ctx.
func (f *flight) gather(ctx context.Context) []error {
	done := ctx.Done()
	var late <-chan time.Time
	for f.gathered < f.sent {
		select {
		case a := <-f.results:
			f.errs[a.of], f.alone[a.of] = a.err, a.alone
			f.gathered++
		case <-done:
			done, late = nil, time.After(publishSlack)
		case <-late:
			return f.errs
		}
	}
	return f.errs
}

var errUnanswered = errors.New("the broker has not answered: the record may be in the log")

// failure decides whether an error is about one record or about the sink. A refused record fails
// others of its partition with the same error, including those of other calls. So a record is
// charged only if it was in flight alone. Otherwise the relay retries each alone.
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

// aboutRecord reports whether the broker refused a batch because of its contents.
func aboutRecord(err error) bool {
	return slices.ContainsFunc([]error{kerr.MessageTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.CorruptMessage, kerr.RecordListTooLarge},
		func(about error) bool { return errors.Is(err, about) })
}

// misfit returns the error of an event that cannot become a record. It is final, except after a
// panic, which may not happen again and counts as an attempt.
func misfit(err error) error {
	failure := &pawl.Error{Op: "kafka.sink", Err: err}
	if callback.Panicked(err) {
		return failure
	}
	return pawl.Final(failure)
}
