package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/internal/fault"
)

// A hand is a worker by hand: it receives orders, handles them in its way, and deletes their
// messages.
type hand struct {
	way   way
	pool  *pgxpool.Pool
	keys  keyClient     // the other store
	lease time.Duration // after which a claim or a lease counts as abandoned
	said  *diary
}

var (
	errSeen = errors.New("the order was handled before")  // its message is deleted
	errHeld = errors.New("another worker has this order") // its message comes again
)

// run receives until ctx ends. Handlers that have begun end first.
func (h *hand) run(ctx context.Context, c workerConfig) error {
	client := broker.Client(c.Endpoint)
	queue, err := client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: aws.String(h.way.Name)})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	if h.way.tend != nil {
		all.Go(func() { h.tend(ctx) })
	}
	for range c.Concurrency {
		all.Go(func() {
			for ctx.Err() == nil {
				got, err := client.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: queue.QueueUrl, MaxNumberOfMessages: 1, WaitTimeSeconds: 1,
					VisibilityTimeout: int32(c.Visibility / time.Second)})
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				for _, m := range got.Messages {
					h.received(context.WithoutCancel(ctx), client, queue.QueueUrl, m)
				}
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

func (h *hand) tend(ctx context.Context) {
	tick := time.NewTicker(min(h.lease/3, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := h.way.tend(ctx, h); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err) // the database is restarting
		}
	}
}

// received handles a message and deletes it. If its handler fails, the queue delivers it again.
func (h *hand) received(ctx context.Context, client *awssqs.Client, queue *string, m types.Message) {
	var o order
	if json.Unmarshal([]byte(aws.ToString(m.Body)), &o) != nil {
		return
	}
	h.said.write(entry{Kind: began, Key: o.Key})
	switch err := h.way.handle(ctx, h, o.Key); {
	case err == nil:
		h.said.write(entry{Kind: effect, Key: o.Key})
	case errors.Is(err, errSeen):
		h.said.write(entry{Kind: seen, Key: o.Key})
	case errors.Is(err, errHeld):
		h.said.write(entry{Kind: held, Key: o.Key})
		return
	default:
		h.said.write(entry{Kind: failed, Key: o.Key})
		return
	}
	if _, err := client.DeleteMessage(ctx, &awssqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: m.ReceiptHandle}); err == nil {
		h.said.write(entry{Kind: acked, Key: o.Key})
	}
}

// work is the time that a handler takes besides its writes.
func (h *hand) work(key string) error {
	if err := h.said.at(started, key); err != nil {
		return err
	}
	time.Sleep(worksFor)
	return nil
}

// effect writes the order's row, and in the same transaction executes also, with the key as $1.
func (h *hand) effect(ctx context.Context, key string, also ...string) error {
	err := pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, writeEffect, h.way.Name, key); err != nil {
			return err
		}
		for _, statement := range also {
			if _, err := tx.Exec(ctx, statement, key); err != nil {
				return err
			}
		}
		return h.said.at(written, key)
	})
	if err != nil {
		return err
	}
	return h.said.at(committed, key)
}

// seenIf returns errSeen if the query, with the key as $1, returns true, and else errHeld.
func (h *hand) seenIf(ctx context.Context, query, key string) error {
	var done bool
	if err := h.pool.QueryRow(ctx, query, key).Scan(&done); err != nil {
		return err
	}
	if done {
		return errSeen
	}
	return errHeld
}

// at reports that a worker has come to a moment. A test can stop the process there.
func (d *diary) at(m moment, key string) error {
	d.write(entry{Kind: string(m), Key: key})
	return fault.At("lab." + string(m))
}
