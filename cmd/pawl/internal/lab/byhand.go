package lab

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
)

// This file is the consumer that people often write: a table of handled messages, a check, a mark,
// then the work. It survives most redeliveries, and it removes its mark if the work fails. It does
// not survive a process that dies between mark and work, two concurrent deliveries, or a COMMIT
// whose response is lost.

func (c workerConfig) handleByHand(ctx context.Context, pool *pgxpool.Pool, said *diary) error {
	client := broker.Client(c.Endpoint)
	queue, err := client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: aws.String(byHand)})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for range concurrency {
		all.Go(func() {
			for ctx.Err() == nil {
				got, err := client.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: queue.QueueUrl, MaxNumberOfMessages: 1, WaitTimeSeconds: 1,
					VisibilityTimeout: int32(visibility / time.Second)})
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				for _, m := range got.Messages {
					receivedByHand(ctx, client, queue.QueueUrl, pool, m, said)
				}
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// receivedByHand handles a message and deletes it. If its handler fails, the queue delivers it
// again.
func receivedByHand(ctx context.Context, client *awssqs.Client, queue *string, pool *pgxpool.Pool, m types.Message, said *diary) {
	var o order
	if json.Unmarshal([]byte(aws.ToString(m.Body)), &o) != nil {
		return
	}
	said.write(began, o.Key)
	kind, err := handledByHand(ctx, pool, o)
	if err != nil {
		said.write(markRemoved, o.Key)
		return
	}
	said.write(kind, o.Key)
	if _, err := client.DeleteMessage(ctx, &awssqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: m.ReceiptHandle}); err == nil {
		said.write(acked, o.Key)
	}
}

func handledByHand(ctx context.Context, pool *pgxpool.Pool, o order) (kind string, err error) {
	var known bool
	if err := pool.QueryRow(ctx, "select exists (select from lab.processed_messages where key operator(pg_catalog.=) $1)", o.Key).Scan(&known); err != nil {
		return "", err
	}
	if known {
		return seen, nil
	}
	//pawl:allow markapart the lab shows this mistake
	if _, err := pool.Exec(ctx, "insert into lab.processed_messages (key) values ($1) on conflict do nothing", o.Key); err != nil {
		return "", err
	}
	err = work(ctx)
	if err == nil {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into lab.by_hand_effect (key) values ($1)", o.Key)
			return err
		})
	}
	if err != nil { // so that it is retried
		_, took := pool.Exec(context.WithoutCancel(ctx), "delete from lab.processed_messages where key operator(pg_catalog.=) $1", o.Key)
		return "", errors.Join(err, took)
	}
	return effect, nil
}
