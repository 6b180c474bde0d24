package broker

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// Visibility is how long messages of a killed worker stay hidden. A run ends about twice that after
// its last kill.
const Visibility = 2 * time.Second

// An SQS is a simulated SQS in this process, reached over HTTP.
type SQS struct {
	Server   *sqstest.Server
	Endpoint string

	listener *sqstest.Listener
	queues   []string
}

var sqs = Kind{
	Title: "SQS",
	Open: func(ctx context.Context, o Options, queues ...string) (Broker, error) {
		return OpenSQS(ctx, sqstest.Chaos(o.Seed, weather), queues...)
	},
	Source: func(ctx context.Context, address, queue string, hooks pawl.Hooks) (pawl.Source, error) {
		return pawlsqs.Open(ctx, Client(address), queue, pawlsqs.Config{Visibility: Visibility, Wait: time.Second, Hooks: hooks})
	},
	Sink: func(ctx context.Context, address, queue string) (pawl.Sink, error) {
		return pawlsqs.OpenSink(ctx, Client(address), queue, pawlsqs.SinkConfig{})
	},
}

// weather sets the faults of the queue.
var weather = sqstest.Rates{Duplicate: 0.03, LoseDelete: 0.02, LoseReceive: 0.002, Error: 0.002, EntryError: 0.002,
	Reorder: true, AbandonedPolls: true}

// OpenSQS starts an SQS with these faults and creates queues in it.
func OpenSQS(ctx context.Context, faults sqstest.Faults, queues ...string) (*SQS, error) {
	s := &SQS{Server: sqstest.New(sqstest.Options{Faults: faults}), queues: queues}
	var err error
	if s.listener, err = s.Server.Start(); err != nil {
		return nil, err
	}
	s.Endpoint = s.listener.URL
	for _, name := range queues {
		if _, err = Client(s.Endpoint).CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: aws.String(name)}); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Close stops it.
func (s *SQS) Close() error { return s.listener.Close() }

// Location is the endpoint.
func (s *SQS) Location() Location { return Location{"sqs", s.Endpoint} }

// Count reads the server's own counts.
func (s *SQS) Count(context.Context) (c Count, err error) {
	for n, queue := range s.queues {
		stats := s.Server.Stats(queue)
		c.Sent += int64(stats.Sent)
		c.Open += stats.Ready + stats.Delayed + stats.InFlight
		c.Done += int64(stats.Deleted)
		if n == 0 {
			c.Received = int64(stats.Received)
		}
	}
	return c, nil
}

// resends bounds how often unconfirmed messages are sent again.
const resends = 10

// Send sends through the SDK. A resend of a message that had arrived becomes one more duplicate.
func (s *SQS) Send(ctx context.Context, queue string, ms ...Message) error {
	sender, err := pawlsqs.OpenSender(ctx, Client(s.Endpoint), queue, "")
	if err != nil {
		return err
	}
	messages := make([]pawlsqs.Message, len(ms))
	for i, m := range ms {
		messages[i] = pawlsqs.Message{Key: m.Key, Payload: m.Payload}
	}
	for again := 0; ; again++ {
		err := sender.Send(ctx, messages...)
		var failed *pawlsqs.SendError
		if err == nil || again == resends || ctx.Err() != nil || !errors.As(err, &failed) {
			return err
		}
		unsent := make([]pawlsqs.Message, len(failed.Unsent))
		for i, n := range failed.Unsent {
			unsent[i] = messages[n]
		}
		messages = unsent
	}
}

// Client is the real SDK's client for the SQS in this process. Its back-off is short, because
// otherwise the waits after planned errors would dominate a run.
func Client(endpoint string) *awssqs.Client {
	return awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &endpoint,
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff, o.RateLimiter = 8, 100*time.Millisecond, ratelimit.None
		}),
		HTTPClient:  &http.Client{Timeout: 30 * time.Second},
		Credentials: credentials.NewStaticCredentialsProvider("demo", "demo", "")})
}
