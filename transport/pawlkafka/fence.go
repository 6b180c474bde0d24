package pawlkafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
)

// When the session of a member expires, the group fences it: other members may own its partitions,
// or may have owned them. If a commit is the first request to learn that, the client rejoins under
// another member id and keeps its partitions without reporting a loss. The windows are then older
// than the other owner's commits, and a commit from them would rewind that owner. So a partition
// stores the membership under which it was assigned:
//
//	send         commits nothing of it under another membership
//	onRevoked    treats it as lost under another membership
//	onAssigned   restarts it at the group's commit if the client kept it

func (s *Source) membership() string {
	member, _ := s.client.GroupMetadata()
	return member
}

// fenced separates partitions of earlier memberships from those of this one.
func fenced(of []*partition, member string) (earlier, ours []*partition) {
	for _, p := range of {
		if p.member != member {
			earlier = append(earlier, p)
		} else {
			ours = append(ours, p)
		}
	}
	return earlier, ours
}

// lose forgets partitions that other members own or owned, and counts lost deliveries.
func (s *Source) lose(forgotten []*partition) {
	s.mu.Lock()
	held := 0
	for _, p := range forgotten {
		held += p.unsettled - len(p.todo)
		s.forget(p)
	}
	s.mu.Unlock()
	s.counters.lost.Add(int64(len(forgotten)))
	if held > 0 {
		s.counters.lostHandles.Add(int64(held))
		s.tell(pawl.Event{Kind: pawl.EventHandleLost, Op: "kafka.lost", Count: held})
	}
}

// renew restarts partitions that the client kept through a fence. They start at the group's commit,
// or at the window's mark if there is no commit. The mark also serves if the coordinator does not
// answer: all records before it are settled, and duplicates are absorbed. Call renew under pumpMu.
func (s *Source) renew(ctx context.Context, kept []*partition) {
	if len(kept) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	commits, err := s.admin.FetchOffsetsForTopics(ctx, s.group, s.topics...)
	if err != nil {
		s.tell(pawl.Event{Kind: pawl.EventError, Op: "kafka.assign", Err: wrap("kafka.assign", s.group, err)})
	}
	s.lose(kept)
	to := offsets{}
	member := s.membership()
	s.mu.Lock()
	for _, old := range kept {
		p := newPartition(s, old.topicPartition, old.topicID, member)
		at := kgo.EpochOffset{Epoch: old.markEpoch, Offset: old.mark}
		c, there := commits.Lookup(p.topic, p.id)
		there = there && c.Err == nil && c.At >= 0
		if there {
			at = kgo.EpochOffset{Epoch: c.LeaderEpoch, Offset: c.At}
		}
		if at.Offset >= 0 {
			p.resume(at.Offset, at.Epoch, readMetadata(&c.Metadata))
			to.set(p.topicPartition, at)
		}
		if !there {
			p.commit.offset = -1
		}
		s.parts[p.topicPartition] = p
		s.order = append(s.order, p)
		s.counters.assigned.Add(1)
	}
	s.mu.Unlock()
	s.client.SetOffsets(to)
}
