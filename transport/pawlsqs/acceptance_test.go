package pawlsqs_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// Features of standard and of FIFO queues.
var (
	standard = transporttest.Features{Counted: true, ReleaseDelay: true, CrashRedelive: true, SentAt: true, Reconnects: true, Revoked: true}
	fifo     = transporttest.Features{Ordered: true, Counted: true, ReleaseDelay: true, CrashRedelive: true, SentAt: true, Reconnects: true, Revoked: true}
)

// suiteConfig is the configuration of a source of the acceptance suite.
var suiteConfig = pawlsqs.Config{Visibility: 12 * time.Second, Wait: time.Second}

func TestAcceptance_Standard(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, broker("q", standard, suiteConfig))
}

func TestAcceptance_FIFO(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, broker("q.fifo", fifo, suiteConfig))
}

// broker is a simulated SQS on loopback. Like AWS's, its abandoned polls take messages.
func broker(queue string, features transporttest.Features, cfg pawlsqs.Config) transporttest.Broker {
	open := func(t *testing.T) transporttest.Queue {
		server := sqstest.New(sqstest.Options{Faults: sqstest.Faults{AbandonedPolls: true}})
		l, err := server.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		q := queueAt(t, l.URL, queue, cfg)
		q.Bounce = func() error {
			address := strings.TrimPrefix(l.URL, "http://")
			if err := l.Close(); err != nil {
				return err
			}
			q.Disconnect(nil)
			l, err = server.StartAt(address)
			return err
		}
		return q
	}
	return transporttest.Broker{Features: features, Open: open, Alone: open, MostBody: 1<<20 - attributesSize, Timeout: 2 * time.Minute}
}

// queueAt creates a queue at an endpoint. Its clients use a network that can be cut.
func queueAt(t *testing.T, endpoint, queue string, cfg pawlsqs.Config) transporttest.Queue {
	wire := &cable{}
	client := newClient(&http.Client{Transport: &http.Transport{DialContext: wire.dial}}, endpoint)
	createQueue(t, client, queue)
	sender, err := pawlsqs.OpenSender(t.Context(), client, queue, "")
	if err != nil {
		t.Fatal(err)
	}
	crashed := map[pawl.Source]*cutOff{}
	return transporttest.Queue{
		Send: func(ctx context.Context, m transporttest.Message) error {
			return sender.Send(ctx, pawlsqs.Message{Key: m.Key, Payload: m.Payload, Attributes: m.Attributes, Group: m.OrderingKey})
		},
		Source: func(t *testing.T) pawl.Source {
			api := &cutOff{API: client}
			s, err := pawlsqs.Open(t.Context(), api, queue, cfg)
			if err != nil {
				t.Fatal(err)
			}
			crashed[s] = api
			return s
		},
		Abandon:    func(s pawl.Source) { crashed[s].cut(t) },
		Revoke:     func(s pawl.Source) { crashed[s].cut(t) }, // its messages become visible again
		Disconnect: func(pawl.Source) { wire.cut() },
	}
}

// attributesSize exceeds the attributes of each message of the suite. SQS counts them with the
// body.
const attributesSize = 1 << 10

// A cable is a network between a client and its server that can be cut.
type cable struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.mu.Unlock()
	}
	return conn, err
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// A cutOff is a client of a process that can die. Its heartbeats then fail, and its messages become
// visible, as after the visibility timeout.
type cutOff struct {
	pawlsqs.API
	gone atomic.Bool

	mu    sync.Mutex
	queue *string
	held  []string // receipt handles
}

func (c *cutOff) ReceiveMessage(ctx context.Context, in *awssqs.ReceiveMessageInput, o ...func(*awssqs.Options)) (*awssqs.ReceiveMessageOutput, error) {
	out, err := c.API.ReceiveMessage(ctx, in, o...)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.queue = in.QueueUrl
		for _, m := range out.Messages {
			c.held = append(c.held, aws.ToString(m.ReceiptHandle))
		}
	}
	return out, err
}

func (c *cutOff) cut(t *testing.T) {
	c.gone.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	for handles := range slices.Chunk(c.held, 10) {
		in := &awssqs.ChangeMessageVisibilityBatchInput{QueueUrl: c.queue}
		for i, h := range handles {
			in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: &h})
		}
		// deleted messages are reported in the output
		if _, err := c.API.ChangeMessageVisibilityBatch(t.Context(), in); err != nil {
			t.Error(err)
		}
	}
	c.held = nil
}

func (c *cutOff) ChangeMessageVisibilityBatch(ctx context.Context, in *awssqs.ChangeMessageVisibilityBatchInput, o ...func(*awssqs.Options)) (*awssqs.ChangeMessageVisibilityBatchOutput, error) {
	if c.gone.Load() { // the source lives on in this test; it forgets what it held
		out := &awssqs.ChangeMessageVisibilityBatchOutput{}
		for _, e := range in.Entries {
			out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: e.Id, Code: aws.String("ReceiptHandleIsInvalid"), SenderFault: true})
		}
		return out, nil
	}
	return c.API.ChangeMessageVisibilityBatch(ctx, in, o...)
}

func createQueue(t testing.TB, client *awssqs.Client, name string) (url string) {
	t.Helper()
	in := &awssqs.CreateQueueInput{QueueName: &name}
	if strings.HasSuffix(name, ".fifo") {
		in.Attributes = map[string]string{"FifoQueue": "true"}
	}
	out, err := client.CreateQueue(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToString(out.QueueUrl)
}
