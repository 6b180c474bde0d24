package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// workerConfig is the first line a worker reads. It comes through a pipe, not the command line, where every user of the
// machine could read the database's password.
type workerConfig struct {
	DatabaseURL   string
	Schema        string
	Endpoint      string
	Seed          uint64
	HandlerErrors float64
}

// readyLine is the first line a worker writes; after it, one event a line.
const readyLine = "ready"

// Work is the worker process: a consumer like any user's, plus the wire to its killer. Further lines of in arm fault
// points; the end of in means that the demo is gone, and ends the process on the spot.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return errors.New("this command is the demo's own; run: pawl demo")
	}
	var c workerConfig
	if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
		return fmt.Errorf("this command is the demo's own; run: pawl demo (%w)", err)
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
	if err != nil {
		return err
	}
	defer closePool()
	fmt.Fprintln(out, readyLine)
	for {
		err := f.Run(ctx)
		if err == nil || !pawl.Retryable(err) {
			return err
		}
		select { // the sessions of killed workers linger, and the server may have no connection left for a moment
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
		Consumer: c.Schema, Source: source, Handler: c.handler(), Lease: lease, MaxAttempts: 10,
		Backoff: job.Backoff{Base: 50 * time.Millisecond, Max: time.Second},
		Hooks:   pawl.Join(report(out), pawl.LogTo(slog.New(slog.NewTextHandler(os.Stderr, nil)))),
	})
	return f, pool.Close, err
}

// handler applies orders, refuses poison, and fails now and then after it has written.
func (c workerConfig) handler() pawl.Handler {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(c.Seed, uint64(os.Getpid())))
	unlucky := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return random.Float64() < c.HandlerErrors
	}
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
		if unlucky() {
			return errors.New("the handler failed after it had written its rows")
		}
		return nil
	}
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
