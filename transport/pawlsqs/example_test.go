package pawlsqs_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// A producer sends the same intent twice, and a consumer sees one key. Package consumer passes the
// receipts of its commit to Ack. Without a receipt you can only release a delivery.
func Example() {
	ctx := context.Background()
	server := sqstest.New(sqstest.Options{})
	client := awssqs.New(awssqs.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String("http://sqs.test"),
		HTTPClient:   server, // no socket; for AWS leave this and BaseEndpoint out
		Credentials:  credentials.NewStaticCredentialsProvider("any", "any", ""),
	})
	if _, err := client.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: aws.String("orders")}); err != nil {
		log.Fatal(err)
	}

	sender, err := pawlsqs.OpenSender(ctx, client, "orders", "")
	if err != nil {
		log.Fatal(err)
	}
	order := pawlsqs.Message{Key: "order-17", Payload: []byte(`{"amount":1250}`)}
	if err := sender.Send(ctx, order, order); err != nil {
		log.Fatal(err)
	}

	source, err := pawlsqs.Open(ctx, client, "orders", pawlsqs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	deliveries, err := source.Receive(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range deliveries {
		fmt.Println(d.Key, string(d.Payload), d.Receives)
	}
	fmt.Println(source.Ack(ctx, pawl.Receipt{}) != nil)
	fmt.Println(source.Release(ctx, 0, deliveries...))
	// Output:
	// order-17 {"amount":1250} 1
	// order-17 {"amount":1250} 1
	// true
	// <nil>
}

// If the queue does not exist, the error says so in one line, with the next step.
func ExampleOpen() {
	client := awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://sqs.test"),
		HTTPClient:  sqstest.New(sqstest.Options{}),
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	_, err := pawlsqs.Open(context.Background(), client, "orders", pawlsqs.Config{})
	fmt.Println(err)
	// Output:
	// sqs.open: queue "orders" does not exist (create it, or check the region, the account and the endpoint of the client: a queue is seen only where it was created)
}

// A FIFO queue returns several messages of a group at once, in order. While one of them is in
// flight, no receiver gets more of the group.
func ExampleSource_Receive_fifo() {
	ctx := context.Background()
	client := awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://sqs.test"),
		HTTPClient:  sqstest.New(sqstest.Options{}),
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	if _, err := client.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: aws.String("ledger.fifo"),
		Attributes: map[string]string{"FifoQueue": "true"}}); err != nil {
		log.Fatal(err)
	}
	sender, err := pawlsqs.OpenSender(ctx, client, "ledger.fifo", "")
	if err != nil {
		log.Fatal(err)
	}
	err = sender.Send(ctx,
		pawlsqs.Message{Key: "a-1", Group: "account-a", Payload: []byte("open")},
		pawlsqs.Message{Key: "a-2", Group: "account-a", Payload: []byte("close")},
		pawlsqs.Message{Key: "b-1", Group: "account-b", Payload: []byte("open")})
	if err != nil {
		log.Fatal(err)
	}
	source, err := pawlsqs.Open(ctx, client, "ledger.fifo", pawlsqs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	deliveries, err := source.Receive(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range deliveries {
		fmt.Println(d.OrderingKey, d.Key)
	}
	fmt.Println(source.Release(ctx, 0, deliveries...)) // a-2 is released with a-1
	// Unordered output:
	// account-a a-1
	// account-a a-2
	// account-b b-1
	// <nil>
}
