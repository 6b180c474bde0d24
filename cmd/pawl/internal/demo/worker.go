package demo

import (
	"bufio"
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
	lease        = 2 * time.Second // how long its stored deliveries do
	connsAWorker = 10
	retriers     = 1 // of them, for stored deliveries
)

// workerConfig is the first line a worker reads. It comes through a pipe, not the command line, where every user of the
// machine could read the database's password.
type workerConfig struct {
	DatabaseURL   string
	Schema        string
	Place         broker.Place
	Seed          uint64
	HandlerErrors float64
	Pipeline      bool
	Payments      *payments `json:",omitempty"`
	Letters       string    `json:",omitempty"` // the mail server: this worker mails letters and does nothing else
}

// ErrByHand is what a person gets who runs the worker.
var ErrByHand = errors.New("this command is the demo's own")

// Work is the worker process: a consumer like any user's, plus the wire to its killer. Further lines of in arm fault
// points; the end of in means that the demo is gone, and ends the process on the spot.
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
		return nil // asked to stop, even if before it had begun
	}
	return err
}

// A part of a worker runs until its context ends: a consumer, a relay.
type part interface{ Run(context.Context) error }

// runAll runs the parts until all have ended, which they do together.
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

// runOne runs a part, and again if it could not start for want of a connection: the sessions of killed workers linger for a
// moment.
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

// parts are a consumer and, in a pipeline, a relay and the consumer behind the next queue; with payments, the webhooks' door too.
func (c workerConfig) parts(ctx context.Context, out io.Writer) (parts []part, closePool func(), err error) {
	config, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = connsAWorker
	config.ConnConfig.RuntimeParams["application_name"] = c.Schema
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectLimit
	}
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
	source, err := c.Place.Source(ctx, queue, hooks)
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

// handler applies orders, refuses poison, and fails now and then after it has written.
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

// unlucky decides whether a try fails, from the seed, the key and the number of the try alone: the same seed fails the
// same tries, whichever process makes them.
func (c workerConfig) unlucky(d pawl.Delivery) bool {
	key := fnv.New64a()
	key.Write([]byte(d.Key))
	return rand.New(rand.NewPCG(c.Seed, key.Sum64()+uint64(d.Receives))).Float64() < c.HandlerErrors
}

// report writes one line an event, at once: what a process counts in memory dies with it.
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
