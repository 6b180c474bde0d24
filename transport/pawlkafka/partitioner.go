package pawlkafka

import (
	"context"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A run is what the records of one PublishRun have in common: the partition of the first holds for all, also if the topic gets more
// partitions on the way.
type run struct{ partition atomic.Int32 }

type runKey struct{}

func withRun(ctx context.Context) (context.Context, *run) {
	r := &run{}
	r.partition.Store(-1)
	return context.WithValue(ctx, runKey{}, r), r
}

// runPartitioner chooses as Kafka's own clients do, by the hash of the key, or, without a key, one partition for a while and then another.
func runPartitioner() kgo.Partitioner { return runs{kgo.StickyKeyPartitioner(nil)} }

type runs struct{ kgo.Partitioner }

func (p runs) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicRuns{p.Partitioner.ForTopic(topic)}
}

type topicRuns struct{ kgo.TopicPartitioner }

// Partition is called for one record at a time.
func (p *topicRuns) Partition(r *kgo.Record, n int) int {
	run, in := runOf(r)
	if !in {
		return p.TopicPartitioner.Partition(r, n)
	}
	if chosen := int(run.partition.Load()); chosen >= 0 && chosen < n {
		return chosen
	}
	chosen := p.TopicPartitioner.Partition(r, n)
	run.partition.Store(int32(chosen))
	return chosen
}

// OnNewBatch tells the partitioner of records without a key that a batch is full.
func (p *topicRuns) OnNewBatch() {
	if told, ok := p.TopicPartitioner.(interface{ OnNewBatch() }); ok {
		told.OnNewBatch()
	}
}

func runOf(r *kgo.Record) (*run, bool) {
	if r.Context == nil {
		return nil, false
	}
	one, in := r.Context.Value(runKey{}).(*run)
	return one, in
}
