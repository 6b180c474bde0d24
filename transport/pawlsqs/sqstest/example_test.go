package sqstest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// Any program that uses SQS can use a server on loopback.
func ExampleServer_Start() {
	server := sqstest.New(sqstest.Options{
		Faults: sqstest.Chaos(1, sqstest.Rates{Duplicate: 1}), // every message is delivered twice
	})
	listener, err := server.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()

	ctx := context.Background()
	client := sqs.New(sqs.Options{Region: "us-east-1", BaseEndpoint: &listener.URL,
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	queue, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("orders")})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: queue.QueueUrl, MessageBody: aws.String("once")}); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue.QueueUrl})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(*out.Messages[0].Body)
	}
	fmt.Println(server.Stats("orders").Duplicated)
	// Output:
	// once
	// once
	// 1
}
