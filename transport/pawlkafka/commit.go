package pawlkafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/fault"
)

// commits makes a commit every 100 ms if there is anything to commit, and at once when it is hurried.
func (s *Source) commits(ctx context.Context) {
	tick := time.NewTicker(commitEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.kick:
		}
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		err := s.commit(limited, "kafka.commit", everyPartition, false)
		cancel()
		if err != nil && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(commitEvery): // not at once again
			}
		}
	}
}

// hurry asks for a commit now.
func (s *Source) hurry() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func everyPartition(*partition) bool { return true }

func (s *Source) commit(ctx context.Context, op string, of func(*partition) bool, final bool) error {
	return s.commitThen(ctx, op, of, final, func() {})
}

// commitThen commits what is due of some partitions, waits for the answer, and then does something under mu, before any other commit is
// chosen. Commits never overtake each other: a broker takes what it is told, also an offset below the last.
//
// The client holds a commit back while the group is being joined, so each is made in one generation. A broker refuses those of
// an earlier one. None is made under another membership than that of its partition.
//
// commit: a crash before it costs one absorbed duplicate for each record that was settled since the last.
func (s *Source) commitThen(ctx context.Context, op string, of func(*partition) bool, final bool, then func()) error {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	offsets, chosen := s.choose(of, final)
	var err error
	if len(chosen) > 0 {
		if err = fault.At("kafka.commit.before"); err == nil {
			err = s.send(ctx, offsets, chosen)
		}
		_ = fault.At("kafka.commit.after")
	}
	s.mu.Lock()
	then()
	s.mu.Unlock()
	if err == nil {
		return nil
	}
	s.counters.commitFailures.Add(1)
	err = wrap(op, s.group, err)
	if !errors.Is(err, context.Canceled) && s.commitErrors.may() {
		s.tell(pawl.Event{Kind: pawl.EventError, Op: op, Err: err})
	}
	return err
}

// choose takes down what is due now.
func (s *Source) choose(of func(*partition) bool, final bool) (map[string]map[int32]kgo.EpochOffset, map[topicPartition]choice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var offsets map[string]map[int32]kgo.EpochOffset
	var chosen map[topicPartition]choice
	for _, p := range s.order {
		if !of(p) {
			continue
		}
		at, c, due := s.due(p, final)
		if !due {
			continue
		}
		if offsets == nil {
			offsets, chosen = map[string]map[int32]kgo.EpochOffset{}, map[topicPartition]choice{}
		}
		if offsets[p.topic] == nil {
			offsets[p.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[p.topic][p.id] = at
		chosen[p.topicPartition] = choice{p, c, metadata{Taken: c.taken, Topic: p.topicIDText()}.text()}
	}
	return offsets, chosen
}

// A choice is what one commit says of one partition.
type choice struct {
	partition *partition
	commit    commitment
	metadata  string
}

// send makes one commit and notes what the broker has taken. It names topics by the ids under which their records were fetched: a commit by
// name would be taken for a topic that was made anew meanwhile, and skip its first records. A broker before 4.1 knows commits by name alone;
// there the id in the metadata tells the next owner.
func (s *Source) send(ctx context.Context, offsets map[string]map[int32]kgo.EpochOffset, chosen map[topicPartition]choice) error {
	fetchedAs := map[string]topicID{}
	s.mu.Lock()
	for tp, c := range chosen {
		fetchedAs[tp.topic] = c.partition.topicID
	}
	s.mu.Unlock()
	withMetadata := kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for t := range req.Topics {
			topic := &req.Topics[t]
			if id := fetchedAs[topic.Topic]; id.known() {
				topic.TopicID = id
			}
			for i := range topic.Partitions {
				c, ours := chosen[topicPartition{topic.Topic, topic.Partitions[i].Partition}]
				if !ours {
					return fmt.Errorf("a commit of %s/%d was not asked for", topic.Topic, topic.Partitions[i].Partition)
				}
				if c.partition.member != req.MemberID { // it was held back while the group was joined anew
					return fmt.Errorf("commit of %s: the session with the group has ended, and another member may have it", c.partition)
				}
				topic.Partitions[i].Metadata = &c.metadata
			}
		}
		return nil
	})
	var failed error
	s.client.CommitOffsetsSync(withMetadata, offsets, func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			failed = err
			return
		}
		failed = s.answered(req, resp, chosen)
	})
	return failed
}

// answered notes what a commit has reached. Later versions of the answer name topics by their ids.
func (s *Source) answered(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, chosen map[topicPartition]choice) error {
	names := map[topicID]string{}
	for _, t := range req.Topics {
		names[t.TopicID] = t.Topic
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed error
	for _, t := range resp.Topics {
		topic := t.Topic
		if topic == "" {
			topic = names[t.TopicID]
		}
		for _, rp := range t.Partitions {
			c, ours := chosen[topicPartition{topic, rp.Partition}]
			if !ours {
				continue
			}
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				failed = fmt.Errorf("commit of %s: %w", c.partition, err)
				continue
			}
			c.partition.commit, c.partition.counted = c.commit, true
			s.counters.commits.Add(1)
		}
	}
	s.wake()
	return failed
}

func (p *partition) topicIDText() string {
	if !p.topicID.known() {
		return ""
	}
	return p.topicID.String()
}
