package pawlkafka

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/fault"
)

// The client calls these in the order of the group's life:
//
//	onAssigned ─▶ onFetched, onAdjust ─▶ records ─▶ onRevoked ─▶ another member may own it
//	                                         └────▶ onLost: another member owns it already
//
// No other member gets the partition before onRevoked returns, so it can change owners cleanly
// there.

// onAssigned adds the new partitions, which are fetched only after it returns. The client calls it
// after each join, so it also finds partitions that were fenced.
func (s *Source) onAssigned(ctx context.Context, _ *kgo.Client, added map[string][]int32) {
	if heard(ctx) {
		return
	}
	s.pumpMu.Lock()
	defer s.pumpMu.Unlock()
	s.renew(ctx, s.assign(added))
}

// assign adds new partitions and returns those kept from an earlier membership.
func (s *Source) assign(added map[string][]int32) (kept []*partition) {
	member := s.membership()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.troubledLast = time.Time{}
	resume := map[string][]int32{}
	for topic, ids := range added {
		for _, id := range ids {
			tp := topicPartition{topic, id}
			if old := s.parts[tp]; old != nil {
				s.forget(old)
			}
			p := newPartition(s, tp, s.ids[topic], member)
			s.parts[tp] = p
			s.order = append(s.order, p)
			s.counters.assigned.Add(1)
			resume[topic] = append(resume[topic], id)
		}
	}
	kept, _ = fenced(s.order, member)
	for _, p := range kept {
		resume[p.topic] = append(resume[p.topic], p.id)
	}
	s.client.ResumeFetchPartitions(resume) // an earlier assignment may have paused them
	return kept
}

// onFetched reads the commits and metadata of new partitions. It reports what a partition skips.
func (s *Source) onFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	var told []error
	s.mu.Lock()
	for _, group := range resp.Groups {
		for _, t := range group.Topics {
			topic := cmp.Or(t.Topic, s.nameOf(t.TopicID))
			for _, rp := range t.Partitions {
				if err := s.fetchedOne(topicPartition{topic, rp.Partition}, t.TopicID, rp); err != nil {
					told = append(told, err)
				}
			}
		}
	}
	s.mu.Unlock()
	for _, err := range told {
		s.tell(pawl.Event{Kind: pawl.EventError, Op: "kafka.log", Err: err})
	}
	return nil
}

// fetchedOne applies the commit of one partition. Call it under mu.
func (s *Source) fetchedOne(tp topicPartition, id topicID, rp kmsg.OffsetFetchResponseGroupTopicPartition) error {
	p := s.parts[tp]
	if p == nil || rp.ErrorCode != 0 {
		return nil
	}
	if id.isSet() {
		p.topicID = id
	}
	delete(s.restart, tp)
	if rp.Offset < 0 {
		return s.begins(tp)
	}
	m := readMetadata(rp.Metadata)
	if m.Topic != "" && p.topicID.isSet() && m.Topic != p.topicID.String() {
		s.restart[tp] = true
		return fmt.Errorf("the commit of %s, offset %d, belongs to an earlier topic of that name: its id was %s, now it is %s; the new topic is received "+
			"from its first record on", tp, rp.Offset, m.Topic, p.topicID)
	}
	p.resume(rp.Offset, rp.LeaderEpoch, m)
	return nil
}

// begins chooses where a partition without a commit starts. A recreated topic starts with its first
// record. Otherwise kgo.ConsumeStartOffset applies, also after an earlier commit was forgotten; the
// returned error then reports what is skipped. Call it under mu.
func (s *Source) begins(tp topicPartition) error {
	start, _ := s.client.OptValue(kgo.ConsumeStartOffset).(kgo.Offset)
	switch {
	case losesNothing(start):
		return nil
	case !s.renewed[tp.topic].IsZero():
		s.restart[tp] = true
		return nil
	}
	return fmt.Errorf("group %s has no commit of %s: it starts where kgo.ConsumeStartOffset says, at %v, and skips earlier records; "+
		"leave that option out to start with the first record", s.group, tp, start)
}

// nameOf returns the name of a topic id. Call it under mu.
func (s *Source) nameOf(id topicID) string {
	for name, known := range s.ids {
		if known == id {
			return name
		}
	}
	return ""
}

// onAdjust starts a partition at its first record if its commit belongs to an earlier topic.
func (s *Source) onAdjust(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp := range s.restart {
		if _, there := offsets[tp.topic][tp.id]; there {
			offsets[tp.topic][tp.id] = kgo.NewOffset().AtStart()
		}
		delete(s.restart, tp)
	}
	return offsets, nil
}

// onRevoked gives partitions up. It drops records whose work has not started, waits at most
// revokeWait for started work, and makes the last commit. Only then does the next owner get them.
//
// revoke: a crash in it costs what a crash anywhere costs: the records after the last commit again.
func (s *Source) onRevoked(called context.Context, _ *kgo.Client, lost map[string][]int32) {
	if heard(called) {
		return
	}
	others, leaving := fenced(s.flag(lost), s.membership())
	s.lose(others)
	if len(leaving) == 0 {
		return
	}
	_ = fault.At("kafka.revoke.before")
	ctx, cancel := context.WithTimeout(context.Background(), s.revokeWait)
	defer cancel()
	left := s.awaitBegun(ctx, leaving)
	committing, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_ = s.commit(committing, "kafka.revoke", leaving, true, func() { // reported
		for _, p := range leaving {
			s.forget(p)
		}
	})
	_ = fault.At("kafka.revoke.after")
	s.counters.revoked.Add(int64(len(leaving)))
	if left > 0 {
		s.tell(pawl.Event{Kind: pawl.EventError, Op: "kafka.revoke", Count: left, Err: fmt.Errorf("%d deliveries were still being handled %v "+
			"after their partitions were revoked: the next owner receives them again as duplicates; set the RebalanceTimeout at least 10s above the handler's Timeout",
			left, s.revokeWait)})
	}
}

// flag marks partitions as leaving: no new work starts, and their windows take no more records.
func (s *Source) flag(lost map[string][]int32) (leaving []*partition) {
	s.pumpMu.Lock()
	defer s.pumpMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, ids := range lost {
		for _, id := range ids {
			if p := s.parts[topicPartition{topic, id}]; p != nil {
				p.leaving = true
				leaving = append(leaving, p)
			}
		}
	}
	return leaving
}

// awaitBegun waits until no started work is left, and returns how much is left when ctx ends.
func (s *Source) awaitBegun(ctx context.Context, leaving []*partition) int {
	for {
		s.mu.Lock()
		begun := 0
		for _, p := range leaving {
			if !p.gone {
				begun += p.started
			}
		}
		changed, finishing := s.changed, s.finishing
		s.mu.Unlock()
		if begun == 0 || finishing {
			return begun
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return begun
		}
	}
}

// onLost forgets partitions that other members already own because the session expired.
func (s *Source) onLost(ctx context.Context, _ *kgo.Client, lost map[string][]int32) {
	if heard(ctx) {
		return
	}
	s.lose(s.flag(lost))
}
