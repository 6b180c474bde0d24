package pawlkafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
)

// A member whose session has ended is fenced: its partitions are another's, or were. If a commit is
// the first to be told, the client joins again under another member id and keeps what it had,
// without a word of a loss. What stands in our windows is of the time before, so a commit of it
// would rewind the owner since. So a partition remembers the membership under which it was
// assigned:
//
//	send         commits nothing of it under another one
//	onRevoked    is a loss if the membership is another one
//	onAssigned   begins it anew at the group's commit if it was kept

// membership names the member that the coordinator knows us as.
func (s *Source) membership() string {
	member, _ := s.client.GroupMetadata()
	return member
}

// fenced tells partitions of an earlier membership from those of this one.
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

// lose forgets partitions that others have or had: what is out of them is lost.
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

// renew begins partitions anew that the client has kept through a fence: at the group's commit, or
// where nothing is committed at our own mark. If the coordinator does not say where the commit
// stands, our mark is not behind it, and what comes again is absorbed. Call it under pumpMu.
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
	to := map[string]map[int32]kgo.EpochOffset{}
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
			if to[p.topic] == nil {
				to[p.topic] = map[int32]kgo.EpochOffset{}
			}
			to[p.topic][p.id] = at
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
