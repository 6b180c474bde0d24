// Package broker is an SQS inside this process, which answers over HTTP, and the SDK's client for it.
package broker

import (
	"context"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// A Broker is one such SQS.
type Broker struct {
	Server   *sqstest.Server
	Endpoint string

	listener *sqstest.Listener
}

// Open starts an SQS with these faults and makes queues in it.
func Open(ctx context.Context, faults sqstest.Faults, queues ...string) (*Broker, error) {
	b := &Broker{Server: sqstest.New(sqstest.Options{Faults: faults})}
	var err error
	if b.listener, err = b.Server.Start(); err != nil {
		return nil, err
	}
	b.Endpoint = b.listener.URL
	for _, name := range queues {
		if _, err = Client(b.Endpoint).CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: aws.String(name)}); err != nil {
			b.Close()
			return nil, err
		}
	}
	return b, nil
}

// Close stops it. What is in its queues is gone.
func (b *Broker) Close() { _ = b.listener.Close() }

// Client is the real SDK's, pointed at the SQS in this process. Its back-off is short: there is no service to
// spare, and the usual seconds after each planned error are all one would see of a run.
func Client(endpoint string) *awssqs.Client {
	return awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &endpoint,
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff, o.RateLimiter = 8, 100*time.Millisecond, ratelimit.None
		}),
		HTTPClient:  &http.Client{Timeout: 30 * time.Second},
		Credentials: credentials.NewStaticCredentialsProvider("demo", "demo", "")})
}
