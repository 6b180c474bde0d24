package pawlkafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
)

type clientHooks struct{ source *Source }

// OnFetchRecordBuffered wakes the pump.
func (h *clientHooks) OnFetchRecordBuffered(*kgo.Record) {
	select {
	case h.source.announced <- struct{}{}:
	default:
	}
}

// OnBrokerConnect reports failed connections, which the client retries silently.
func (h *clientHooks) OnBrokerConnect(to kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil && !errors.Is(err, context.Canceled) && h.source.connects.may() {
		h.source.tell(pawl.Event{Kind: pawl.EventError, Op: "kafka.connect", Err: wrap("kafka.connect", to.Host, err)})
	}
}

var (
	_ kgo.HookFetchRecordBuffered = (*clientHooks)(nil)
	_ kgo.HookBrokerConnect       = (*clientHooks)(nil)
)

// A reporter allows one report in ten seconds.
type reporter struct {
	mu   sync.Mutex
	last time.Time
}

func (r *reporter) may() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.last) < 10*time.Second {
		return false
	}
	r.last = time.Now()
	return true
}

// pump moves fetched records from the client into the windows until ctx ends.
func (s *Source) pump(ctx context.Context) {
	// Finds fetch errors, which are not announced, and windows with new room.
	idle := time.NewTicker(idlePoll)
	defer idle.Stop()
	for {
		for s.poll(ctx) {
		}
		select {
		case <-ctx.Done():
			return
		case <-s.announced:
		case <-idle.C:
		}
	}
}

// poll takes what the client has buffered and reports whether there was anything. It does not wait,
// because pumpMu makes polling and filling the windows one step for the group callbacks. So no
// record of an earlier assignment enters the window of a later one.
func (s *Source) poll(ctx context.Context) bool {
	s.pumpMu.Lock()
	if ctx.Err() != nil || !s.mayFetch() {
		s.pumpMu.Unlock()
		return false
	}
	var atOnce context.Context // nil: PollRecords returns what is buffered, without waiting
	fetches := s.client.PollRecords(atOnce, pollRecords)
	if fetches.Empty() && len(fetches.Errors()) == 0 {
		s.pumpMu.Unlock()
		return false
	}
	found, anew := s.stow(fetches)
	s.pumpMu.Unlock()
	s.hurry() // records of new partitions are handed out once their takeover is committed
	for _, f := range found {
		s.tell(pawl.Event{Kind: pawl.EventError, Op: "kafka.log", Key: f.partition, Err: f.err})
	}
	for topic, fetched := range anew {
		s.again(ctx, topic, fetched)
	}
	return true
}

func (s *Source) mayFetch() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.finishing {
		return false
	}
	if s.crowded && s.octets <= s.config.MaxTotalOctets/2 {
		s.crowded = false
	}
	return !s.crowded
}

// A logChange is a fact about a log that a fetch revealed.
type logChange struct {
	partition string
	err       error
}

// stow puts fetched records into the windows of their partitions, and pauses full partitions. It
// returns findings about logs. It also returns the topics that the broker no longer knows, with the
// id under which they were fetched.
func (s *Source) stow(fetches kgo.Fetches) ([]logChange, map[string]topicID) {
	var found []logChange
	full, anew := map[string][]int32{}, map[string]topicID{}
	s.mu.Lock()
	fetches.EachTopic(func(t kgo.FetchTopic) {
		for _, fp := range t.Partitions {
			tp := topicPartition{t.Topic, fp.Partition}
			if errors.Is(fp.Err, kerr.UnknownTopicID) {
				anew[t.Topic] = t.TopicID
			} else if f := s.failed(tp, fp.Err); f != nil {
				found = append(found, *f)
			}
			p := s.parts[tp]
			if p == nil || p.leaving || len(fp.Records) == 0 {
				continue // revoked: its next owner has the records
			}
			if topicID(t.TopicID).isSet() {
				p.topicID = t.TopicID
			}
			found = append(found, s.stowPartition(p, fp)...)
			if !p.paused && p.full(s.config) {
				p.paused = true
				full[t.Topic] = append(full[t.Topic], fp.Partition)
			}
		}
	})
	s.crowded = s.octets >= s.config.MaxTotalOctets
	if len(full) > 0 { // under mu, so that a resume cannot overtake the pause that it ends
		s.client.PauseFetchPartitions(full)
	}
	s.wake()
	s.mu.Unlock()
	return found, anew
}

func (s *Source) stowPartition(p *partition, fp kgo.FetchPartition) (found []logChange) {
	before := p.octets
	if first := fp.Records[0].Offset; p.next >= 0 && first > p.next && fp.LogStartOffset > p.next {
		found = append(found, logChange{p.String(), fmt.Errorf("the log of %s starts at offset %d, but offset %d was next: retention or an operator deleted "+
			"the records between them unread; raise retention.ms, or consume faster", p, fp.LogStartOffset, p.next)})
	}
	s.troubledLast = time.Time{}
	if !p.fetched {
		p.fetched, p.there, p.suspects = true, fp.HighWatermark, s.config.MaxRecords
	}
	for _, r := range fp.Records {
		if r.Offset < p.next {
			found = append(found, logChange{p.String(), fmt.Errorf("the log of %s was truncated: offset %d came, but %d was next; records from there on are "+
				"received as new. An unclean leader election causes this; see unclean.leader.election.enable and min.insync.replicas", p, r.Offset, p.next)})
			p.truncate(r.Offset, r.LeaderEpoch)
		}
		one := owned(r)
		at := &entry{of: p, offset: r.Offset, epoch: r.LeaderEpoch, size: sizeOf(r), key: orderingKey(one), record: one}
		if p.taken > 1 && p.suspects > 0 && r.Offset < p.there {
			at.suspect = true
			p.suspects--
		}
		p.add(at)
	}
	s.octets += p.octets - before
	return found
}

// failed keeps a fetch error for the next Receive, or returns it if it is a logChange about a log.
// It drops a retriable error until such errors have lasted for troubleFor. Call it under mu.
func (s *Source) failed(tp topicPartition, err error) *logChange {
	var loss *kgo.ErrDataLoss
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrClientClosed):
		return nil
	case errors.As(err, &loss):
		return &logChange{tp.String(), fmt.Errorf("the log of %s lost records: it was read to offset %d, and continues at %d", tp, loss.ConsumedTo, loss.ResetTo)}
	}
	if passing(err) {
		now := time.Now()
		if now.Sub(s.troubledLast) > troubleFor {
			s.troubled = now
		}
		s.troubledLast = now
		if now.Sub(s.troubled) < troubleFor {
			return nil
		}
	}
	if len(s.errs) < maxErrors {
		s.errs = append(s.errs, err)
	}
	return nil
}

// passing reports whether the client usually recovers from err by itself, as when a broker starts.
func passing(err error) bool {
	var network net.Error
	return kerr.IsRetriable(err) || errors.As(err, &network)
}

// again switches the client to a recreated topic; otherwise it would wait for the old one forever.
// The new topic has no commits, so it is received from its first record on.
//
// The client may reload outdated metadata once more after the switch. So again compares the id
// under which the client fetches, and does not rely on an earlier switch.
func (s *Source) again(ctx context.Context, topic string, fetched topicID) {
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ids, err := topicIDs(asking, s.admin, []string{topic})
	s.mu.Lock()
	old, last := s.ids[topic], s.renewed[topic]
	switch {
	case err != nil:
		s.failed(topicPartition{topic: topic}, err)
		s.mu.Unlock()
		return
	case fetched == ids[topic], !fetched.isSet() && old == ids[topic], time.Since(last) < renewEvery:
		s.mu.Unlock() // the broker does not know the new topic yet, or the client has not loaded it
		return
	}
	s.ids[topic], s.renewed[topic] = ids[topic], time.Now()
	for _, p := range s.order {
		if p.topic == topic && p.topicID != ids[topic] {
			s.forget(p) // offsets of the old topic must not be committed for the new one
		}
	}
	s.mu.Unlock()
	if old != ids[topic] {
		s.tell(pawl.Event{Kind: pawl.EventError, Op: "kafka.log", Key: topic, Err: fmt.Errorf("topic %s was deleted and recreated: its id was %s, now it is %s; "+
			"the new topic is received from its first record on", topic, old, ids[topic])})
	}
	s.client.PurgeTopicsFromConsuming(topic)
	s.client.AddConsumeTopics(topic)
}

// renewEvery is how long the client may take to load a recreated topic.
const renewEvery = 3 * time.Second
