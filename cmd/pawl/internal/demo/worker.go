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
	"github.com/pawl-go/pawl/flow"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/transport/sqs"
)

const (
	// How long a killed worker's messages stay hidden. A run ends about twice that after its last kill.
	visibility = 2 * time.Second

	lease        = 2 * time.Second // how long its landed deliveries do
	connsAWorker = 10
)

// workerConfig is the first line a worker reads. It comes through a pipe, not the command line, where every user of the
// machine could read the database's password.
type workerConfig struct {
	DatabaseURL   string
	Schema        string
	Endpoint      string
	Seed          uint64
	HandlerErrors float64
}

// ErrByHand is what a person gets who runs the worker.
var ErrByHand = errors.New("this command is the demo's own")

// readyLine is the first line a worker writes; after it, one event a line.
const readyLine = "ready"

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
	f, closePool, err := c.flow(ctx, out)
	if err == nil {
		defer closePool()
		fmt.Fprintln(out, readyLine)
		err = consume(ctx, f)
	}
	if ctx.Err() != nil {
		return nil // asked to stop, even if before it had begun
	}
	return err
}

// consume runs the flow, and again if it could not start for want of a connection: the sessions of killed workers linger
// for a moment.
func consume(ctx context.Context, f *flow.Flow) error {
	for {
		err := f.Run(ctx)
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

func (c workerConfig) flow(ctx context.Context, out io.Writer) (*flow.Flow, func(), error) {
	config, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = connsAWorker
	config.ConnConfig.RuntimeParams["application_name"] = c.Schema
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectLimit
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	source, err := sqs.Open(ctx, client(c.Endpoint), queueName, sqs.Config{Visibility: visibility, Wait: time.Second})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	f, err := flow.New(pool, flow.Config{
		Consumer: c.Schema, Name: fmt.Sprintf("%s/%d", c.Schema, os.Getpid()), Source: source, Handler: c.handler(),
		Concurrency: connsAWorker - 3, RetryConcurrency: 1, Lease: lease, MaxAttempts: 10,
		Backoff: job.Backoff{Base: 50 * time.Millisecond, Max: time.Second},
		Hooks:   pawl.Join(report(out), pawl.LogTo(slog.New(slog.NewTextHandler(os.Stderr, nil)))),
	})
	return f, pool.Close, err
}

// handler applies orders, refuses poison, and fails now and then after it has written.
func (c workerConfig) handler() pawl.Handler {
	return func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		o, err := orderOf(d.Body)
		if err != nil {
			return pawl.Final(err)
		}
		if err := apply(ctx, tx, c.Schema, o); err != nil {
			return err
		}
		if o.Poison {
			return pawl.Final(errors.New("this order cannot be applied"))
		}
		if c.unlucky(d) {
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
