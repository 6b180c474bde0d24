//go:build proof

package pawlkafka_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// These tests check, with a plain client, facts of Kafka that the design relies on. If one changes,
// the source may become simpler.

// commitAt commits an offset as member c and returns the broker's response.
func commitAt(t *testing.T, c *kgo.Client, topic string, partition int32, offset int64) (answer error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{topic: {partition: {Epoch: -1, Offset: offset}}},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if answer = err; err == nil {
				answer = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
			}
		})
	return answer
}

// A broker accepts any offset, even one below the last. So a source makes one commit at a time.
func TestFact_CommitMayGoBackwards(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 1, nil), unique(t)
	assigned := make(chan struct{}, 1)
	c := client(t, at, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { assigned <- struct{}{} }))
	<-assigned
	admin := kadm.NewClient(client(t, at))
	for _, offset := range []int64{4, 1} {
		if err := commitAt(t, c, topic, 0, offset); err != nil {
			t.Fatal(err)
		}
		if now, _ := committed(t, admin, group, topic, 0); now != offset {
			t.Errorf("committed is %d after a commit of %d", now, offset)
		}
	}
}

// A member may still commit a partition that it gave up, and so rewind the next owner. The broker
// checks membership, not ownership. So a source must not commit after a revoke.
func TestFact_MemberMayCommitARevokedPartition(t *testing.T) {
	t.Parallel()
	for _, serverSide := range []bool{false, true} {
		t.Run(fmt.Sprint("serverside=", serverSide), func(t *testing.T) {
			t.Parallel()
			at := addr(t)
			topic, group := createTopic(t, at, 2, nil), unique(t)
			a, b := join(t, at, group, topic, serverSide), join(t, at, group, topic, serverSide)
			await(t, "each has one partition", func() bool { return len(a.owned()) == 1 && len(b.owned()) == 1 })
			moved := b.owned()[0]
			admin := kadm.NewClient(client(t, at))
			await(t, "the owner commits", func() bool { return commitAt(t, b.Client, topic, moved, 5) == nil })
			await(t, "the other may commit too", func() bool {
				// During a rebalance, the broker asks to retry.
				err := commitAt(t, a.Client, topic, moved, 1)
				if err != nil {
					t.Log(err)
				}
				return err == nil
			})
			if now, _ := committed(t, admin, group, topic, moved); now != 1 {
				t.Errorf("committed is %d", now)
			}
		})
	}
}

// A plainMember is a group member that uses only the plain client.
type plainMember struct {
	*kgo.Client
	mu  sync.Mutex
	has []int32
}

func (m *plainMember) owned() []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.has)
}

func join(t *testing.T, at, group, topic string, serverSide bool) *plainMember {
	m := &plainMember{}
	gone := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.has = slices.DeleteFunc(m.has, func(p int32) bool { return slices.Contains(lost[topic], p) })
	}
	opts := []kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.HeartbeatInterval(200 * time.Millisecond), kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.has = append(m.has, added[topic]...)
		})}
	if serverSide {
		opts = append(opts, kgo.ServerSideBalancer())
	}
	m.Client = client(t, at, opts...)
	return m
}
