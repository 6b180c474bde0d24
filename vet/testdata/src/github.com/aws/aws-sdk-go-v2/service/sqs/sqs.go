// Package sqs has the names that the test data uses.
package sqs

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

type Options struct{}

type (
	DeleteMessageInput   struct{ QueueUrl, ReceiptHandle *string }
	DeleteMessageOutput  struct{}
	ReceiveMessageInput  struct{ QueueUrl *string }
	ReceiveMessageOutput struct{ Messages []types.Message }
	SendMessageInput     struct{ QueueUrl, MessageBody *string }
	SendMessageOutput    struct{}
)

type Client struct{}

func (*Client) DeleteMessage(ctx context.Context, in *DeleteMessageInput, o ...func(*Options)) (*DeleteMessageOutput, error) {
	return nil, nil
}

func (*Client) ReceiveMessage(ctx context.Context, in *ReceiveMessageInput, o ...func(*Options)) (*ReceiveMessageOutput, error) {
	return nil, nil
}

func (*Client) SendMessage(ctx context.Context, in *SendMessageInput, o ...func(*Options)) (*SendMessageOutput, error) {
	return nil, nil
}
