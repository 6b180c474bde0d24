//go:build proof

package pawlkafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/internal/testbed/counted"
	"github.com/pawl-go/pawl/transport/pawlkafka"
)

// countedSession is the members' session timeout.
const countedSession = 4 * time.Second

// The counted runs pass with the classic group protocol and with KIP-848.
func TestCounted(t *testing.T) {
	t.Run("classic", func(t *testing.T) { counted.All(t, countedKafka("")) })
	t.Run("serverside", func(t *testing.T) { counted.All(t, countedKafka("yes")) })
}

// The counted runs detect a broken consumer or source.
func TestCounted_FindsMutants(t *testing.T) {
	for _, c := range []struct {
		mutant string
		run    counted.Run
	}{
		// It sends each order once. In the run of kills, one of three copies often outlives a
		// crash.
		{counted.AckFirst, counted.Rolling},
		{counted.AckReleased, counted.Rolling},
		{counted.NoOrder, counted.Order},
		{pawlkafka.HighestSettled, counted.Rebalance},
		{pawlkafka.AfterRevoke, counted.Rebalance},
	} {
		t.Run(c.mutant, func(t *testing.T) {
			t.Parallel()
			tr := countedKafka("")
			tr.Options["eager"] = "yes"
			counted.MustFail(t, tr, c.run, c.mutant)
		})
	}
}

// countedOptions always dial addr, which may be a proxy, and never the broker's advertised address.
func countedOptions(addr string) []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(addr), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second),
		kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, addr)
		})}
}

func openCounted(ctx context.Context, s counted.Spec) (pawl.Source, error) {
	opts := append(countedOptions(s.Addr), kgo.SessionTimeout(s.Session), kgo.HeartbeatInterval(s.Session/10), kgo.FetchMaxWait(500*time.Millisecond))
	source, err := pawlkafka.Open(ctx, opts, s.Name, []string{s.Name}, pawlkafka.Config{Wait: time.Second, ServerSideBalancer: s.Options["serverside"] != ""})
	if err != nil {
		return nil, err
	}
	pawlkafka.Break(source, s.Mutant)
	if s.Options["eager"] != "" {
		return eager{source}, nil
	}
	return source, nil
}

// An eager source commits within Ack. A delivery acknowledged too early is then lost at any crash,
// and not only after a commit tick.
type eager struct{ *pawlkafka.Source }

func (e eager) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	return errors.Join(e.Source.Ack(ctx, rs...), pawlkafka.Commit(ctx, e.Source))
}

func openCountedSink(ctx context.Context, s counted.Spec) (pawl.Sink, error) {
	return pawlkafka.OpenSink(ctx, countedOptions(s.Addr), []string{s.Name}, pawlkafka.SinkConfig{})
}

func countedKafka(serverSide string) counted.Transport {
	name := "kafka"
	if serverSide != "" {
		name = "kafka KIP-848"
	}
	return counted.Transport{
		Name: name, Session: countedSession, Ordered: true, Sequential: true, Window: 1000, Options: map[string]string{"serverside": serverSide},
		Points: []string{"kafka.commit.before", "kafka.commit.after", "kafka.revoke.before", "kafka.revoke.after"},
		Start: func(t testing.TB, need counted.Need) counted.Broker {
			if need.Alone {
				return ownBroker(t)
			}
			s, err := shared()
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Create: func(ctx context.Context, q counted.Queue) error {
			return withAdmin(ctx, q, func(admin *kadm.Client) error { return createCounted(ctx, admin, q) })
		},
		Forget: func(ctx context.Context, q counted.Queue) error {
			return withAdmin(ctx, q, func(admin *kadm.Client) error {
				if _, err := admin.DeleteTopic(ctx, q.Name); err != nil {
					return err
				}
				return createCounted(ctx, admin, q)
			})
		},
		Send:      sendCounted,
		Left:      leftCounted,
		Committed: committedCounted,
	}
}

// withAdmin calls ask with an admin client of the run's broker.
func withAdmin(ctx context.Context, q counted.Queue, ask func(*kadm.Client) error) error {
	c, err := kgo.NewClient(countedOptions(q.Broker.Addr())...)
	if err != nil {
		return err
	}
	defer c.Close()
	return ask(kadm.NewClient(c))
}

// createCounted creates a topic and waits until each partition has a leader. It retries while an
// earlier topic of the same name is still being deleted.
func createCounted(ctx context.Context, admin *kadm.Client, q counted.Queue) error {
	settings := map[string]*string{"max.message.bytes": kadm.StringPtr("2097152")}
	partitions := int32(max(q.Partitions, 1))
	for ctx.Err() == nil {
		made, err := admin.CreateTopics(ctx, partitions, 1, settings, q.Name)
		if err == nil && (made[q.Name].Err == nil || strings.Contains(made[q.Name].Err.Error(), "ALREADY_EXISTS")) {
			ends, err := admin.ListEndOffsets(ctx, q.Name)
			if err == nil && ends.Error() == nil && len(ends[q.Name]) == int(partitions) {
				return nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return ctx.Err()
}

func sendCounted(ctx context.Context, q counted.Queue, ms []counted.Message) error {
	c, err := kgo.NewClient(append(countedOptions(q.Broker.Addr()), kgo.ProducerBatchMaxBytes(2<<20), kgo.AllowIdempotentProduceCancellation())...)
	if err != nil {
		return err
	}
	defer c.Close()
	rs := make([]*kgo.Record, len(ms))
	for i, m := range ms {
		rs[i] = &kgo.Record{Topic: q.Name, Value: m.Body}
		if m.Lane != "" {
			rs[i].Key = []byte(m.Lane)
		}
		if m.Key != "" {
			rs[i].Headers = []kgo.RecordHeader{{Key: pawlkafka.DefaultKeyHeader, Value: []byte(m.Key)}}
		}
	}
	return c.ProduceSync(ctx, rs...).FirstErr()
}

func committedCounted(ctx context.Context, q counted.Queue) (offsets map[string]int64, err error) {
	offsets = map[string]int64{}
	return offsets, withAdmin(ctx, q, func(admin *kadm.Client) error {
		all, err := admin.FetchOffsets(ctx, q.Name)
		if err != nil {
			return err
		}
		for _, c := range all.Offsets().Sorted() {
			offsets[fmt.Sprintf("%s/%d", c.Topic, c.Partition)] = c.At
		}
		return nil
	})
}

func leftCounted(ctx context.Context, q counted.Queue) (left int, err error) {
	offsets, err := committedCounted(ctx, q)
	if err != nil {
		return 0, err
	}
	return left, withAdmin(ctx, q, func(admin *kadm.Client) error {
		ends, err := admin.ListEndOffsets(ctx, q.Name)
		if err != nil {
			return err
		}
		for _, end := range ends[q.Name] {
			if end.Err != nil {
				return end.Err
			}
			left += int(end.Offset - offsets[fmt.Sprintf("%s/%d", q.Name, end.Partition)])
		}
		return nil
	})
}

var _ counted.Mortal = (*brokers.Server)(nil)
