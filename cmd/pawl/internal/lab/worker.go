package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/fleet"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

// WorkerCommand is the hidden command of the lab's worker processes.
const WorkerCommand = "lab-worker"

// The two camps. Their queues have the same names.
const (
	withPawl = "pawl"
	byHand   = "by-hand"
)

const (
	visibility  = 3 * time.Second // how long messages of a dead worker stay hidden
	lease       = 3 * time.Second // how long a stored delivery stays with a silent worker
	concurrency = 4
	// time in a handler besides its writes, long enough to be hit by a fault
	worksFor = 100 * time.Millisecond
)

// workerConfig is the first line that a worker reads.
type workerConfig struct {
	Camp        string
	DatabaseURL string // through the worker's own proxy
	Endpoint    string // of the SQS
}

// ErrByHand is returned if a person runs the worker.
var ErrByHand = errors.New("this command is the crash lab's own")

type order struct {
	Key string `json:"key"`
}

// Work is the worker process. It exits when its parent process has ended.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	var c workerConfig
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &c) != nil || c.Camp == "" {
		return ErrByHand
	}
	go func() {
		for lines.Scan() {
		}
		os.Exit(1)
	}()
	pool, err := c.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	said := &diary{out: out}
	run := func(ctx context.Context) error { return c.handleByHand(ctx, pool, said) }
	if c.Camp == withPawl {
		f, err := c.consumer(ctx, pool, said)
		if err != nil {
			return err
		}
		run = f.Run
	}
	fmt.Fprintln(out, fleet.Ready)
	for {
		err := run(ctx)
		if ctx.Err() != nil || err == nil {
			return nil
		}
		fmt.Fprintln(os.Stderr, err) // the database is restarting
		time.Sleep(200 * time.Millisecond)
	}
}

func (c workerConfig) pool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 10
	config.ConnConfig.ConnectTimeout = 5 * time.Second
	config.ConnConfig.RuntimeParams["application_name"] = "pawl lab " + c.Camp
	pawl.Watch(config.ConnConfig, pawl.Watching{})
	return pgxpool.NewWithConfig(ctx, config)
}

// consumer is a Pawl consumer like any user's.
func (c workerConfig) consumer(ctx context.Context, pool *pgxpool.Pool, said *diary) (*consumer.Consumer, error) {
	hooks := pawl.Join(pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) { said.write(string(e.Kind), e.Key) }},
		pawl.LogTo(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	source, err := pawlsqs.Open(ctx, broker.Client(c.Endpoint), withPawl, pawlsqs.Config{Visibility: visibility, Wait: time.Second, Hooks: hooks})
	if err != nil {
		return nil, err
	}
	return consumer.New(pool, consumer.Config{Name: consumerName, Source: source, Concurrency: concurrency, RetryConcurrency: 1, Hooks: hooks,
		Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[order]) error {
			said.write(began, m.Value.Key)
			if _, err := tx.Exec(ctx, "insert into lab.pawl_effect (key) values ($1)", m.Value.Key); err != nil {
				return err
			}
			return work(ctx)
		}).With(consumer.TxPolicy{Policy: consumer.Policy{Lease: lease, Backoff: job.Backoff{Base: 100 * time.Millisecond, Max: time.Second}}})})
}

// work is the time that a handler takes besides its writes.
func work(ctx context.Context) error {
	select {
	case <-time.After(worksFor):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reports of workers about an order, in addition to Pawl's event kinds.
const (
	began       = "began"        // the handler was called
	seen        = "seen"         // by hand: the table says it was handled
	markRemoved = "mark_removed" // by hand: the handler failed, and the mark was removed
	effect      = "effect"       // by hand: it took effect
	acked       = "acknowledged" // by hand: the message was deleted
)

// A diary writes the reports of a worker: one line for each event, at once, because data in memory
// is lost when the process is killed.
type diary struct {
	mu  sync.Mutex
	out io.Writer
}

type entry struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

func (d *diary) write(kind, key string) {
	if key == "" {
		return
	}
	line, err := json.Marshal(entry{kind, key})
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, _ = d.out.Write(append(line, '\n'))
}
