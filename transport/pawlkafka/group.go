package pawlkafka

import (
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
//	onAssigned ─▶ onFetched, onAdjust ─▶ records ─▶ onRevoked ─▶ another member may have it
//	                                         └────▶ onLost: another member has it already
//
// No other member gets the partition before onRevoked has returned. That is the one moment at which a partition changes hands cleanly.

// onAssigned begins partitions. They are not fetched before it returns. The client calls it after
// each join, so it also finds those that a fence has outdated.
func (s *Source) onAssigned(ctx context.Context, _ *kgo.Client, added map[string][]int32) {
	if heard(ctx) {
		return
	}
	s.pumpMu.Lock()
	defer s.pumpMu.Unlock()
	s.renew(ctx, s.assign(added))
}

// assign begins partitions that are new, and returns those that were kept from an earlier
// membership.
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
	s.client.ResumeFetchPartitions(resume) // an earlier assignment may have been paused
	return kept
}

// onFetched reads where the commits of new partitions stand, and what earlier owners wrote beside
// them. What a partition skips is told.
func (s *Source) onFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	var told []error
	s.mu.Lock()
	for _, group := range resp.Groups {
		for _, t := range group.Topics {
			topic := t.Topic
			if topic == "" {
				topic = s.nameOf(t.TopicID)
			}
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

// fetchedOne takes the commit of one partition. Call it under mu.
func (s *Source) fetchedOne(tp topicPartition, id topicID, rp kmsg.OffsetFetchResponseGroupTopicPartition) error {
	p := s.parts[tp]
	if p == nil || rp.ErrorCode != 0 {
		return nil
	}
	if id.known() {
		p.topicID = id
	}
	delete(s.restart, tp)
	if rp.Offset < 0 {
		return s.begins(tp)
	}
	m := readMetadata(rp.Metadata)
	if m.Topic != "" && p.topicID.known() && m.Topic != p.topicID.String() {
		s.restart[tp] = true
		return fmt.Errorf("the commit of %s, offset %d, is of an earlier topic of that name: that was %s, this is %s; the new one is received "+
			"from its first record on", tp, rp.Offset, m.Topic, p.topicID)
	}
	p.resume(rp.Offset, rp.LeaderEpoch, m)
	return nil
}

// begins decides where a partition begins of which nothing is committed. A topic that was made anew
// begins with its first record. Else kgo.ConsumeStartOffset says it, also if an earlier commit was
// forgotten: what it skips is told. Call it under mu.
func (s *Source) begins(tp topicPartition) error {
	start, _ := s.client.OptValue(kgo.ConsumeStartOffset).(kgo.Offset)
	switch {
	case losesNothing(start):
		return nil
	case !s.renewed[tp.topic].IsZero():
		s.restart[tp] = true
		return nil
	}
	return fmt.Errorf("group %s has no commit of %s: it begins where kgo.ConsumeStartOffset says, at %v, and skips what is before; "+
		"leave that option out to begin with the first record", s.group, tp, start)
}

// nameOf finds a topic by its id. Call it under mu.
func (s *Source) nameOf(id topicID) string {
	for name, known := range s.ids {
		if known == id {
			return name
		}
	}
	return ""
}

// onAdjust begins at the start where the commit is of an earlier topic.
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

// onRevoked gives partitions up. What has not begun is dropped; what has begun is waited for, as long as the group waits for us; then the last
// commit is made, and only then does the next owner get the partition.
//
// revoke: a crash in it costs what a crash anywhere costs, the records from the last commit on come again.
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
	ours := map[*partition]bool{}
	for _, p := range leaving {
		ours[p] = true
	}
	committing, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	s.commitThen(committing, "kafka.revoke", func(p *partition) bool { return ours[p] }, true, func() {
		for _, p := range leaving {
			s.forget(p)
		}
	})
	_ = fault.At("kafka.revoke.after")
	s.counters.revoked.Add(int64(len(leaving)))
	if left > 0 {
		s.tell(pawl.Event{Kind: pawl.EventError, Op: "kafka.revoke", Count: left, Err: fmt.Errorf("%d deliveries were still being handled %v "+
			"after their partitions were revoked: the next owner receives them too, and their keys absorb that; set the RebalanceTimeout above the Timeout of the handler and 10s more",
			left, s.revokeWait)})
	}
}

// flag marks partitions: nothing of them begins from here on, and nothing more is put into their windows.
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

// awaitBegun waits until nothing that has begun is unsettled, and returns how much of it is left when ctx ends.
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

// onLost forgets partitions that others have already: the session has ended.
func (s *Source) onLost(ctx context.Context, _ *kgo.Client, lost map[string][]int32) {
	if heard(ctx) {
		return
	}
	s.lose(s.flag(lost))
}
