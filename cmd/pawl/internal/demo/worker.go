package demo

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/testbed/fleet"
	"github.com/pawl-go/pawl/job"
)

const (
	lease        = 2 * time.Second // lease of stored deliveries
	connsAWorker = 10
	retriers     = 1 // connections for stored deliveries
)

// workerConfig is the first line that a worker reads. It comes through a pipe, because every user
// of the machine could read the database's password on the command line.
type workerConfig struct {
	DatabaseURL   string
	Schema        string
	Location      broker.Location
	Seed          uint64
	HandlerErrors float64
	Pipeline      bool
	Payments      *payments `json:",omitempty"`
	// URL of the mail server: this worker only mails letters
	Letters string `json:",omitempty"`
}

// ErrByHand is returned if a person runs the worker.
var ErrByHand = errors.New("this command is the demo's own")

// Work is the worker process: a consumer like any user's, with a pipe from the killer. Each further
// line of in arms a fault point. The end of in means that the demo has ended, and ends the process
// at once.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	var c workerConfig
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &c) != nil {
		return ErrByHand
	}
	go func() {
		for lines.Scan() {
			if err := fault.Arm(lines.Text()); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		os.Exit(1)
	}()
	parts, closePool, err := c.parts(ctx, out)
	if err == nil {
		defer closePool()
		fmt.Fprintln(out, fleet.Ready)
		err = runAll(ctx, parts)
	}
	if ctx.Err() != nil {
		return nil // asked to stop, perhaps before it started
	}
	return err
}

// A part of a worker runs until its context ends: a consumer or a relay.
type part interface{ Run(context.Context) error }

// runAll runs the parts until all have ended. If one ends, it stops the others.
func runAll(ctx context.Context, parts []part) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make(chan error, len(parts))
	for _, p := range parts {
		go func() { errs <- runOne(ctx, p) }()
	}
	var first error
	for range parts {
		if err := <-errs; first == nil {
			first = err
		}
		stop()
	}
	return first
}

// runOne runs a part, and retries if it could not connect, because sessions of killed workers
// linger for a moment.
func runOne(ctx context.Context, p part) error {
	for {
		err := p.Run(ctx)
		if !pawl.Retryable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// parts returns a consumer and, in a pipeline, a relay and the second consumer. With payments it
// adds the receiver of webhooks.
func (c workerConfig) parts(ctx context.Context, out io.Writer) (parts []part, closePool func(), err error) {
	config, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = connsAWorker
	config.ConnConfig.RuntimeParams["application_name"] = c.Schema
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, connectLimit)
	pawl.Watch(config.ConnConfig, pawl.Watching{})
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	hooks := pawl.Join(report(out), pawl.LogTo(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	if c.Letters != "" {
		p, err := c.postman(pool, hooks, out)
		return []part{p}, pool.Close, err
	}
	var f *consumer.Consumer
	if c.Payments != nil {
		f, parts, err = c.pay(pool, hooks)
	} else {
		f, err = c.consumer(ctx, pool, hooks, queueName, c.Schema, c.handler(c.order))
	}
	parts = append(parts, f)
	if err == nil && c.Pipeline {
		var hop []part
		hop, err = c.hop(ctx, pool, hooks)
		parts = append(parts, hop...)
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return parts, pool.Close, nil
}

func (c workerConfig) consumer(ctx context.Context, pool *pgxpool.Pool, hooks pawl.Hooks, queue, name string, h func(context.Context, pgx.Tx, consumer.Message[order]) error) (*consumer.Consumer, error) {
	source, err := c.Location.Source(ctx, queue, hooks)
	if err != nil {
		return nil, err
	}
	handlers := connsAWorker - 2 - retriers
	if c.Pipeline {
		handlers = (connsAWorker - 2 - 2*retriers) / 2
	}
	return consumer.New(pool, consumer.Config{
		Name: name, Source: source, Concurrency: handlers, RetryConcurrency: retriers, Hooks: hooks,
		Handler: consumer.HandleTx(h).With(consumer.TxPolicy{Policy: consumer.Policy{Lease: lease, MaxAttempts: 10, Backoff: backoff}}),
	})
}

var backoff = job.Backoff{Base: 50 * time.Millisecond, Max: time.Second}

func (c workerConfig) name() string { return fmt.Sprintf("%s/%d", c.Schema, os.Getpid()) }

// handler applies orders, refuses poison, and sometimes fails after its writes.
func (c workerConfig) handler(apply func(context.Context, pgx.Tx, order) error) func(context.Context, pgx.Tx, consumer.Message[order]) error {
	return func(ctx context.Context, tx pgx.Tx, m consumer.Message[order]) error {
		if err := apply(ctx, tx, m.Value); err != nil {
			return err
		}
		if m.Value.Poison {
			return pawl.Final(errors.New("this order cannot be applied"))
		}
		if c.unlucky(m.Delivery) {
			return errors.New("the handler failed after it had written its rows")
		}
		return nil
	}
}

// unlucky decides whether an attempt fails, from the seed, the key and the attempt's number alone.
// The same seed fails the same attempts in any process.
func (c workerConfig) unlucky(d pawl.Delivery) bool {
	key := fnv.New64a()
	key.Write([]byte(d.Key))
	return rand.New(rand.NewPCG(c.Seed, key.Sum64()+uint64(d.Receives))).Float64() < c.HandlerErrors
}

// report writes one line per event at once, because counts in memory are lost when the process is
// killed.
func report(out io.Writer) pawl.Hooks {
	var mu sync.Mutex
	return pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		mu.Lock()
		defer mu.Unlock()
		for range max(e.Count, 1) {
			fmt.Fprintln(out, e.Kind)
		}
	}}
}
