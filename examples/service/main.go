// Command service takes orders from SQS and over HTTP, each once, and books them in a job: three doors in one process.
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

// What works at once, each on a connection of its own, and the two that the consumer and the worker need beside.
const (
	fresh, retried, booked, requests = 6, 2, 4, 6
	connections                      = fresh + retried + 2 + booked + 2 + requests
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL"), os.Getenv("QUEUE"), cmp.Or(os.Getenv("LISTEN"), "localhost:8080")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, database, queue, address string) error {
	settings, err := pgxpool.ParseConfig(database)
	if err != nil {
		return err
	}
	settings.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return err
	}
	defer pool.Close() // last, after all that uses it
	aws, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	source, err := pawlsqs.Open(ctx, awssqs.NewFromConfig(aws), queue, pawlsqs.Config{})
	if err != nil {
		return err
	}
	consumer, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(apply), Concurrency: fresh, RetryConcurrency: retried})
	if err != nil {
		return err
	}
	worker, err := job.NewWorker(pool, job.Config{
		Queues:   []job.Queue{{Name: "ledger", Concurrency: booked}},
		Handlers: []job.Handler{job.HandleTx("book", book)},
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpkey.Once(pool, account, httpkey.Options{}, create))
	log.Printf("serving http://%s", listener.Addr())
	return together(ctx, consumer.Run, worker.Run, func(ctx context.Context) error { return serve(ctx, listener, mux) })
}

// together runs the parts until ctx ends or one of them does, stops the others, waits for them, and returns what went wrong in each.
func together(ctx context.Context, parts ...func(context.Context) error) (failed error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() { ended <- part(ctx) }()
	}
	for range parts {
		failed = errors.Join(failed, <-ended)
		stop()
	}
	return failed
}

// serve answers until ctx ends, and then lets those finish that are under way.
func serve(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 25*time.Second)
	defer cancel()
	return server.Shutdown(last)
}
