// Command upgrade is a user's program in its own module: a service with a consumer and a worker, and
// the load for it.
//
//	upgrade work     apply orders from the queue, and book each in a job
//	upgrade load     send orders until stdin ends, wait until the queue is empty, print their number
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "load" {
		service.Main(load)
		return
	}
	service.Main(work)
}

func queue() (client *awssqs.Client, url string) {
	endpoint := os.Getenv("SQS")
	return awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &endpoint, Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "any", SecretAccessKey: "any"}, nil
	})}), endpoint + "/000000000000/orders"
}

type order struct {
	ID int `json:"id"`
}

type booking struct {
	ID int    `json:"id"`
	By string `json:"by"` // the build that enqueued it
}

var book = job.Define("book", job.Defaults[booking]{Queue: "ledger", Key: func(b booking) string { return strconv.Itoa(b.ID) }})

func work(ctx context.Context) error {
	pool, cfg, err := service.FromEnv(ctx)
	if err != nil {
		return err
	}
	client, url := queue()
	source, err := pawlsqs.Open(ctx, client, url, pawlsqs.Config{Visibility: 15 * time.Second, Wait: time.Second})
	if err != nil {
		return err
	}
	app, err := service.New(pool, cfg)
	if err != nil {
		return err
	}
	app.Consumer(consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(apply)})
	app.Worker(job.Config{Handlers: []job.Handler{book.HandleTx(enter)}})
	return app.Run(ctx)
}

var errPlanned = errors.New("a planned failure, after the handler has written its rows")

// apply writes an effect and enqueues its job. Nothing in the table of effects keeps it from having
// a row twice.
func apply(ctx context.Context, tx pgx.Tx, m consumer.Message[order]) error {
	_, err := tx.Exec(ctx, "insert into effect (kind, id, build, process) select 'message', $1::int, $2::text, $3::int from pg_sleep(0.02)", m.Value.ID, os.Getenv("BUILD"), os.Getpid())
	if err != nil {
		return err
	}
	if rand.IntN(50) == 0 {
		return errPlanned
	}
	_, err = book.Enqueue(ctx, tx, booking{m.Value.ID, os.Getenv("BUILD")})
	return err
}

// enter writes the second effect.
func enter(ctx context.Context, tx pgx.Tx, t job.Task[booking]) error {
	_, err := tx.Exec(ctx, "insert into effect (kind, id, build, process, enqueued_by) select 'job', $1::int, $2::text, $3::int, $4::text from pg_sleep(0.02)",
		t.Value.ID, os.Getenv("BUILD"), os.Getpid(), t.Value.By)
	if err == nil && rand.IntN(50) == 0 {
		err = errPlanned
	}
	return err
}

// load uses nothing of Pawl but its way to stop.
func load(ctx context.Context) error {
	client, url := queue()
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	sent := 0
	for ; !ended.Load() || sent < 3000; time.Sleep(50 * time.Millisecond) {
		const atOnce = 8
		errs := make(chan error, atOnce)
		for n := range atOnce {
			go func() { errs <- send(ctx, client, url, strconv.Itoa(sent+n)) }()
		}
		for range atOnce {
			if err := <-errs; err != nil {
				return err
			}
		}
		sent += atOnce
	}
	for {
		a, err := client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
		if err != nil {
			log.Print(err) // the queue misbehaves on purpose
		} else if a.Attributes["ApproximateNumberOfMessages"] == "0" && a.Attributes["ApproximateNumberOfMessagesNotVisible"] == "0" && a.Attributes["ApproximateNumberOfMessagesDelayed"] == "0" {
			fmt.Println(sent)
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// send sends a message until the queue says that it has it, and some messages once more.
func send(ctx context.Context, client *awssqs.Client, url, id string) error {
	copies := 1 + rand.IntN(2)
	for tries := 0; copies > 0; tries++ {
		_, err := client.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(`{"id":` + id + `}`),
			MessageAttributes: map[string]types.MessageAttributeValue{"Idempotency-Key": {DataType: aws.String("String"), StringValue: &id}}})
		if err == nil {
			copies--
		} else if tries == 100 {
			return err
		}
	}
	return nil
}
