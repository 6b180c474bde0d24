package pawlkafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/fault"
)

// commits makes a commit every 100 ms if one is due, and at once after hurry.
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
		err := s.commit(limited, "kafka.commit", nil, false, func() {})
		cancel()
		if err != nil && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(commitEvery): // back off
			}
		}
	}
}

func (s *Source) hurry() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// commit commits the due offsets of all partitions, or of those in of. After the broker's response
// it calls then under mu, before the next commit chooses its offsets. Commits run one at a time,
// because a broker accepts any offset, even one below the last.
//
// The client holds commits back while it joins the group, so each commit belongs to one generation.
// A broker rejects commits of an earlier generation. A partition's offset is never committed under
// another membership than the partition's own.
//
// commit: a crash before it costs an absorbed duplicate for each record settled since the last one.
func (s *Source) commit(ctx context.Context, op string, of []*partition, final bool, then func()) error {
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

func (s *Source) choose(of []*partition, final bool) (offsets, map[topicPartition]choice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	offsets, chosen := offsets{}, map[topicPartition]choice{}
	for _, p := range s.order {
		if of != nil && !slices.Contains(of, p) {
			continue
		}
		if at, c, due := s.due(p, final); due {
			offsets.set(p.topicPartition, at)
			chosen[p.topicPartition] = choice{p, c, metadata{Taken: c.taken, Topic: p.topicIDText()}.text()}
		}
	}
	return offsets, chosen
}

type offsets map[string]map[int32]kgo.EpochOffset

func (o offsets) set(tp topicPartition, at kgo.EpochOffset) {
	if o[tp.topic] == nil {
		o[tp.topic] = map[int32]kgo.EpochOffset{}
	}
	o[tp.topic][tp.id] = at
}

// A choice is one partition's part of a commit.
type choice struct {
	partition *partition
	commit    commitment
	metadata  string
}

// send makes one commit and notes the offsets that the broker accepted. It names topics by the ids
// under which their records were fetched. A commit by name would also apply to a topic recreated in
// the meantime, and skip its first records. Brokers before 4.1 know commits by name only; there,
// the next owner compares the topic id in the metadata.
func (s *Source) send(ctx context.Context, offsets offsets, chosen map[topicPartition]choice) error {
	fetchedAs := map[string]topicID{}
	s.mu.Lock()
	for tp, c := range chosen {
		fetchedAs[tp.topic] = c.partition.topicID
	}
	s.mu.Unlock()
	withMetadata := kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for t := range req.Topics {
			topic := &req.Topics[t]
			if id := fetchedAs[topic.Topic]; id.isSet() {
				topic.TopicID = id
			}
			for i := range topic.Partitions {
				c, ours := chosen[topicPartition{topic.Topic, topic.Partitions[i].Partition}]
				if !ours {
					return fmt.Errorf("a commit contains %s/%d, which was not chosen", topic.Topic, topic.Partitions[i].Partition)
				}
				if c.partition.member != req.MemberID { // the client held it back during a rejoin
					return fmt.Errorf("commit of %s: the group session has expired, and another member may own the partition", c.partition)
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
		failed = s.recordAccepted(req, resp, chosen)
	})
	return failed
}

// recordAccepted records the accepted offsets. Later versions of the response name topics by id.
func (s *Source) recordAccepted(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, chosen map[topicPartition]choice) error {
	names := map[topicID]string{}
	for _, t := range req.Topics {
		names[t.TopicID] = t.Topic
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed error
	for _, t := range resp.Topics {
		topic := cmp.Or(t.Topic, names[t.TopicID])
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
	if !p.topicID.isSet() {
		return ""
	}
	return p.topicID.String()
}
