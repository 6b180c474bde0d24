package demo

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/pawl-go/pawl/transport/sqs"
)

// client is the real SDK's, pointed at the SQS in the demo's process.
func client(endpoint string) *awssqs.Client {
	return awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &endpoint, RetryMaxAttempts: 8,
		HTTPClient:  &http.Client{Timeout: 30 * time.Second},
		Credentials: credentials.NewStaticCredentialsProvider("demo", "demo", "")})
}

func createQueue(ctx context.Context, endpoint string) error {
	_, err := client(endpoint).CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: aws.String(queueName)})
	return err
}

// produce sends every order Duplicates times, in random order, each time as a message of its own, the way a producer
// does that retries after a timeout. It sends in portions and lets the killer keep up, so that every kill meets work.
func (r *run) produce(ctx context.Context, random *rand.Rand) error {
	sender, err := sqs.OpenSender(ctx, client(r.endpoint), queueName, "")
	if err != nil {
		return err
	}
	messages := make([]sqs.Message, 0, len(r.sent)*r.Duplicates)
	for _, o := range r.sent {
		for range r.Duplicates {
			messages = append(messages, sqs.Message{Key: o.Key, Body: bodyOf(o)})
		}
	}
	random.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	portions := r.Kills + 1
	for n := range portions {
		if err := r.killer.caughtUp(ctx, n); err != nil {
			return err
		}
		portion := messages[len(messages)*n/portions : len(messages)*(n+1)/portions]
		if err := sender.Send(ctx, portion...); err != nil {
			return err
		}
	}
	return nil
}
