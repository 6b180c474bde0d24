//go:build proof

package pawlsqs_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/counted"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

const countedSession = 2 * time.Second // visibility timeout

func TestMain(m *testing.M) {
	counted.Main(m, counted.Opener{
		Source: func(ctx context.Context, s counted.Spec) (pawl.Source, error) {
			return pawlsqs.Open(ctx, newClient(nil, "http://"+s.Addr), s.Name+s.Options["suffix"], pawlsqs.Config{Visibility: s.Session, Wait: time.Second})
		},
		Sink: func(ctx context.Context, s counted.Spec) (pawl.Sink, error) {
			return pawlsqs.OpenSink(ctx, newClient(nil, "http://"+s.Addr), s.Name+s.Options["suffix"], pawlsqs.SinkConfig{})
		},
	})
}

// The counted runs of package counted hold on a standard and on a FIFO queue.
func TestCounted(t *testing.T) {
	t.Run("standard", func(t *testing.T) { counted.All(t, countedSQS("")) })
	t.Run("fifo", func(t *testing.T) { counted.All(t, countedSQS(".fifo")) })
}

// The counted runs detect broken consumers.
func TestCounted_FindsMutants(t *testing.T) {
	for _, c := range []struct {
		suffix, mutant string
		run            counted.Run
	}{
		{"", counted.AckFirst, counted.Kill},
		{"", counted.EffectOutside, counted.Kill},
		{"", counted.FreshKeys, counted.Kill},
		{"", counted.AckNothing, counted.Kill},
		{"", counted.AckReleased, counted.Rolling},
		{".fifo", counted.NoOrder, counted.Order},
	} {
		t.Run(c.mutant+c.suffix, func(t *testing.T) {
			t.Parallel()
			counted.MustFail(t, countedSQS(c.suffix), c.run, c.mutant)
		})
	}
}

// countedSQS describes queues whose names end in suffix.
func countedSQS(suffix string) counted.Transport {
	client := func(q counted.Queue) *awssqs.Client { return newClient(nil, "http://"+q.Broker.Addr()) }
	name := func(q counted.Queue) string { return q.Name + suffix }
	return counted.Transport{
		Name: "sqs" + suffix, Session: countedSession, MaxBody: 1<<20 - 200, // the attributes count
		Options: map[string]string{"suffix": suffix}, Ordered: suffix == ".fifo",
		Start: func(t testing.TB, _ counted.Need) counted.Broker { return startServer(t) },
		Create: func(ctx context.Context, q counted.Queue) error {
			in := &awssqs.CreateQueueInput{QueueName: aws.String(name(q))}
			if suffix == ".fifo" {
				in.Attributes = map[string]string{"FifoQueue": "true"}
			}
			_, err := client(q).CreateQueue(ctx, in)
			return err
		},
		Send: func(ctx context.Context, q counted.Queue, ms []counted.Message) error {
			return sendCounted(ctx, client(q), name(q), ms)
		},
		Left: func(_ context.Context, q counted.Queue) (int, error) {
			stats := q.Broker.(*server).queues.Stats(name(q))
			return stats.Ready + stats.Delayed + stats.InFlight, nil
		},
	}
}

func sendCounted(ctx context.Context, client *awssqs.Client, queue string, ms []counted.Message) error {
	out, err := client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return err
	}
	for len(ms) > 0 {
		n := min(10, len(ms))
		if len(ms[0].Body) > 100_000 {
			n = 1
		}
		in := &awssqs.SendMessageBatchInput{QueueUrl: out.QueueUrl}
		for i, m := range ms[:n] {
			e := types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(string(m.Body))}
			if m.Key != "" {
				e.MessageAttributes = map[string]types.MessageAttributeValue{"Idempotency-Key": {DataType: aws.String("String"), StringValue: &m.Key}}
			}
			if strings.HasSuffix(queue, ".fifo") {
				e.MessageGroupId, e.MessageDeduplicationId = aws.String(strings.ReplaceAll(m.Lane, " ", "_")), &m.ID
			}
			in.Entries = append(in.Entries, e)
		}
		sent, err := client.SendMessageBatch(ctx, in)
		if err != nil {
			return err
		}
		if len(sent.Failed) > 0 {
			return errors.New(aws.ToString(sent.Failed[0].Message))
		}
		ms = ms[n:]
	}
	return nil
}

// A server is an SQS that can disappear and return at one address. Its queues stay, like those of a
// broker that syncs its disk.
type server struct {
	queues *sqstest.Server
	addr   string

	mu       sync.Mutex
	listener *sqstest.Listener
}

func startServer(t testing.TB) *server {
	t.Helper()
	s := &server{queues: sqstest.New(sqstest.Options{})}
	var err error
	if s.listener, err = s.queues.Start(); err != nil {
		t.Fatal(err)
	}
	s.addr = strings.TrimPrefix(s.listener.URL, "http://")
	t.Cleanup(s.Kill)
	return s
}

func (s *server) Addr() string { return s.addr }

// Kill drops all connections and stops listening.
func (s *server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
}

func (s *server) Start(context.Context) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, err = s.queues.StartAt(s.addr)
	var busy *net.OpError
	if errors.As(err, &busy) {
		err = fmt.Errorf("%s was taken while the server was away: %w", s.addr, err)
	}
	return err
}
