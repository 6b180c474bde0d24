package pawlkafka

import (
	"context"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// onePartition holds the partition of the first record of a PublishBatch. All other records of the
// call go there too, even if the topic gets more partitions meanwhile.
type onePartition struct{ number atomic.Int32 }

type onePartitionKey struct{}

func withOnePartition(ctx context.Context) (context.Context, *onePartition) {
	one := &onePartition{}
	one.number.Store(-1)
	return context.WithValue(ctx, onePartitionKey{}, one), one
}

// newPartitioner chooses like Kafka's own clients: by the hash of the key, or without a key one
// partition for a while and then another.
func newPartitioner() kgo.Partitioner { return partitioner{kgo.StickyKeyPartitioner(nil)} }

type partitioner struct{ kgo.Partitioner }

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{p.Partitioner.ForTopic(topic)}
}

type topicPartitioner struct{ kgo.TopicPartitioner }

// Partition is called for one record at a time.
func (p *topicPartitioner) Partition(r *kgo.Record, n int) int {
	one, in := onePartitionOf(r)
	if !in {
		return p.TopicPartitioner.Partition(r, n)
	}
	if chosen := int(one.number.Load()); chosen >= 0 && chosen < n {
		return chosen
	}
	chosen := p.TopicPartitioner.Partition(r, n)
	one.number.Store(int32(chosen))
	return chosen
}

// OnNewBatch passes on that a batch is full, which the partitioner of keyless records needs.
func (p *topicPartitioner) OnNewBatch() {
	if told, ok := p.TopicPartitioner.(interface{ OnNewBatch() }); ok {
		told.OnNewBatch()
	}
}

func onePartitionOf(r *kgo.Record) (*onePartition, bool) {
	if r.Context == nil {
		return nil, false
	}
	one, in := r.Context.Value(onePartitionKey{}).(*onePartition)
	return one, in
}
