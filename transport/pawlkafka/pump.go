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

// clientHooks listen to the client.
type clientHooks struct{ source *Source }

// OnFetchRecordBuffered tells the pump that there is something to poll.
func (h *clientHooks) OnFetchRecordBuffered(*kgo.Record) {
	select {
	case h.source.announced <- struct{}{}:
	default:
	}
}

// OnBrokerConnect reports that no connection can be made: the client itself tries again in silence.
func (h *clientHooks) OnBrokerConnect(to kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil && !errors.Is(err, context.Canceled) && h.source.connects.may() {
		h.source.tell(pawl.Event{Kind: pawl.EventError, Op: "kafka.connect", Err: wrap("kafka.connect", to.Host, err)})
	}
}

var (
	_ kgo.HookFetchRecordBuffered = (*clientHooks)(nil)
	_ kgo.HookBrokerConnect       = (*clientHooks)(nil)
)

// A reporter lets one report through in ten seconds.
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

// pump moves what the client has fetched into the windows until ctx ends.
func (s *Source) pump(ctx context.Context) {
	idle := time.NewTicker(idlePoll) // finds errors of fetches, which nothing announces, and room that has come
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

// poll takes what the client has buffered and reports whether that was something. It does not wait: poll and windows are one step for the
// callbacks, so that no record of an earlier assignment reaches the window of a later one.
func (s *Source) poll(ctx context.Context) bool {
	s.pumpMu.Lock()
	if ctx.Err() != nil || !s.mayFetch() {
		s.pumpMu.Unlock()
		return false
	}
	var atOnce context.Context // nil: PollRecords returns what is buffered
	fetches := s.client.PollRecords(atOnce, pollRecords)
	if fetches.Empty() && len(fetches.Errors()) == 0 {
		s.pumpMu.Unlock()
		return false
	}
	found, anew := s.stow(fetches)
	s.pumpMu.Unlock()
	s.hurry() // new partitions are handed out once their takeover is committed
	for _, f := range found {
		s.tell(pawl.Event{Kind: pawl.EventError, Op: "kafka.log", Key: f.partition, Err: f.err})
	}
	for topic, fetched := range anew {
		s.again(ctx, topic, fetched)
	}
	return true
}

// mayFetch reports whether there is room, and is asked to fetch at all.
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

// A finding is what a fetch showed of a log, beside its records.
type finding struct {
	partition string
	err       error
}

// stow puts fetched records into the windows of their partitions, and pauses what is full. It returns what it found out about logs, and the
// topics that the broker does not know any more, by the id under which they were fetched.
func (s *Source) stow(fetches kgo.Fetches) (found []finding, anew map[string]topicID) {
	var full map[string][]int32
	s.mu.Lock()
	fetches.EachTopic(func(t kgo.FetchTopic) {
		for _, fp := range t.Partitions {
			tp := topicPartition{t.Topic, fp.Partition}
			if errors.Is(fp.Err, kerr.UnknownTopicID) {
				if anew == nil {
					anew = map[string]topicID{}
				}
				anew[t.Topic] = t.TopicID
			} else if f := s.failed(tp, fp.Err); f != nil {
				found = append(found, *f)
			}
			p := s.parts[tp]
			if p == nil || p.leaving || len(fp.Records) == 0 {
				continue // it was revoked: its next owner has the records
			}
			if topicID(t.TopicID).known() {
				p.topicID = t.TopicID
			}
			found = append(found, s.stowPartition(p, fp)...)
			if !p.paused && p.full(s.config) {
				p.paused = true
				if full == nil {
					full = map[string][]int32{}
				}
				full[t.Topic] = append(full[t.Topic], fp.Partition)
			}
		}
	})
	s.crowded = s.octets >= s.config.MaxTotalOctets
	if full != nil { // under mu: a resume must not come before the pause that it ends
		s.client.PauseFetchPartitions(full)
	}
	s.wake()
	s.mu.Unlock()
	return found, anew
}

// stowPartition puts records of one fetch into their window.
func (s *Source) stowPartition(p *partition, fp kgo.FetchPartition) (found []finding) {
	before := p.octets
	if first := fp.Records[0].Offset; p.next >= 0 && first > p.next && fp.LogStartOffset > p.next {
		found = append(found, finding{p.String(), fmt.Errorf("the log of %s begins with offset %d, and offset %d was next: records between them were "+
			"deleted unread, by retention or by hand; raise retention.ms, or consume faster", p, fp.LogStartOffset, p.next)})
	}
	s.troubledLast = time.Time{}
	if !p.fetched {
		p.fetched, p.there, p.suspects = true, fp.HighWatermark, s.config.MaxRecords
	}
	for _, r := range fp.Records {
		if r.Offset < p.next {
			found = append(found, finding{p.String(), fmt.Errorf("the log of %s was cut: offset %d came, and %d was next; what is behind it is "+
				"received as new. An unclean election of a leader does that; see unclean.leader.election.enable and min.insync.replicas", p, r.Offset, p.next)})
			p.truncate(r.Offset, r.LeaderEpoch)
		}
		one := owned(r)
		at := &place{of: p, offset: r.Offset, epoch: r.LeaderEpoch, size: sizeOf(r), key: orderingKey(one), record: one}
		if p.taken > 1 && p.suspects > 0 && r.Offset < p.there {
			at.suspect = true
			p.suspects--
		}
		p.add(at)
	}
	s.octets += p.octets - before
	return found
}

// failed keeps an error of a fetch for the next Receive, or returns it if it is a finding about a log. Call it under mu.
func (s *Source) failed(tp topicPartition, err error) *finding {
	var loss *kgo.ErrDataLoss
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrClientClosed):
		return nil
	case errors.As(err, &loss):
		return &finding{tp.String(), fmt.Errorf("the log of %s lost records: it was read to offset %d, and goes on from %d", tp, loss.ConsumedTo, loss.ResetTo)}
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

// passing recognises what the client gets over by itself, as a rule: a coordinator that moves, a broker that starts.
func passing(err error) bool {
	var network net.Error
	return kerr.IsRetriable(err) || errors.As(err, &network)
}

// again goes on with a topic that was deleted and made anew: the client itself would wait for the old one for ever. Nothing is committed of
// the new one, so it is received from its first record on.
//
// The client may load what it knew before the topic was made anew once more. So what counts is the id under which it fetches, and not
// whether it was told to go on before.
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
	case fetched == ids[topic], !fetched.known() && old == ids[topic], time.Since(last) < renewEvery:
		s.mu.Unlock() // the broker does not know the new one yet, or the client has not loaded it
		return
	}
	s.ids[topic], s.renewed[topic] = ids[topic], time.Now()
	for _, p := range s.order {
		if p.topic == topic && p.topicID != ids[topic] {
			s.forget(p) // nothing of the old topic may be committed for the new one
		}
	}
	s.mu.Unlock()
	if old != ids[topic] {
		s.tell(pawl.Event{Kind: pawl.EventError, Op: "kafka.log", Key: topic, Err: fmt.Errorf("topic %s was deleted and made anew: it was %s and is %s; "+
			"the new one is received from its first record on", topic, old, ids[topic])})
	}
	s.client.PurgeTopicsFromConsuming(topic)
	s.client.AddConsumeTopics(topic)
}

// renewEvery is how long the client may take to load a topic that was made anew.
const renewEvery = 3 * time.Second
