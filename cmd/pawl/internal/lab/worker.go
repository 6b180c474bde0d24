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
	"slices"
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
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

// WorkerCommand is the hidden command of the lab's worker processes.
const WorkerCommand = "lab-worker"

// The defaults of a workerConfig.
const (
	visibility  = 3 * time.Second // how long messages of a dead worker stay hidden
	lease       = 3 * time.Second // how long an order stays with a silent worker
	concurrency = 4
)

// workerConfig is the first line that a worker reads.
type workerConfig struct {
	Way         string
	DatabaseURL string // through the worker's own proxy
	Endpoint    string // of the SQS
	Keys        string // URL of the key store
	Visibility  time.Duration
	Lease       time.Duration
	Concurrency int
	Faults      string `json:",omitempty"` // fault points to arm: see package fault
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
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &c) != nil {
		return ErrByHand
	}
	w, known := wayOf(c.Way)
	if !known {
		return ErrByHand
	}
	go func() {
		for lines.Scan() {
		}
		os.Exit(1)
	}()
	if c.Faults != "" {
		if err := fault.Arm(c.Faults); err != nil {
			return err
		}
	}
	pool, err := c.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	h := &hand{way: w, pool: pool, keys: keyClient(c.Keys), lease: c.Lease, said: &diary{out: out}}
	run := func(ctx context.Context) error { return h.run(ctx, c) }
	if w.handle == nil {
		f, err := c.consumer(ctx, h)
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
	config.ConnConfig.RuntimeParams["application_name"] = "pawl lab " + c.Way
	pawl.Watch(config.ConnConfig, pawl.Watching{})
	return pgxpool.NewWithConfig(ctx, config)
}

// writeEffect writes the row of an order. The table has no unique key.
const writeEffect = "insert into lab.effect (way, key) values ($1, $2)"

// consumer is a Pawl consumer like any user's, except that its handler ignores the end of its
// context. So a worker that stalled past its lease tries its late write, and the page shows that it
// is refused.
func (c workerConfig) consumer(ctx context.Context, h *hand) (*consumer.Consumer, error) {
	hooks := pawl.Join(pawl.Hooks{OnEvent: h.said.event}, pawl.LogTo(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	source, err := pawlsqs.Open(ctx, broker.Client(c.Endpoint), withPawl, pawlsqs.Config{Visibility: c.Visibility, Wait: time.Second, Hooks: hooks})
	if err != nil {
		return nil, err
	}
	return consumer.New(h.pool, consumer.Config{Name: consumerName, Source: source, Concurrency: c.Concurrency, RetryConcurrency: 1, Hooks: hooks,
		Handler: consumer.Handle(func(ctx context.Context, a *consumer.Attempt[order]) error {
			ctx, key := context.WithoutCancel(ctx), a.Value.Key
			h.said.handles(a.Job(), entry{Kind: began, Key: key, Fence: a.Fence()})
			if err := h.work(key); err != nil {
				return err
			}
			err := a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, writeEffect, withPawl, key); err != nil {
					return err
				}
				return h.said.at(written, key)
			})
			if err != nil {
				return err
			}
			return h.said.at(committed, key)
		}).With(consumer.Policy{Lease: c.Lease, Backoff: job.Backoff{Base: 100 * time.Millisecond, Max: time.Second}})})
}

// Reports of workers about an order, in addition to their moments and to Pawl's event kinds.
const (
	began  = "began"        // the handler was called
	seen   = "seen"         // by hand: it was handled before
	held   = "held"         // by hand: another worker has it
	failed = "hand_failed"  // by hand: the handler failed
	effect = "effect"       // by hand: it took effect
	acked  = "acknowledged" // by hand: the message was deleted
)

// A diary writes the reports of a worker: one line for each event, at once, because data in memory
// is lost when the process is killed.
type diary struct {
	mu   sync.Mutex
	out  io.Writer
	keys map[int64]string // of the orders being handled, by the job that owns them
}

type entry struct {
	Kind  string `json:"kind"`
	Key   string `json:"key"`
	Fence int64  `json:"fence,omitempty"` // 0: none
}

// handles reports that the handler of a job was called.
func (d *diary) handles(job int64, e entry) {
	d.mu.Lock()
	if d.keys == nil {
		d.keys = map[int64]string{}
	}
	d.keys[job] = e.Key
	d.mu.Unlock()
	d.write(e)
}

// event reports an event of Pawl. Those of a handler name its job instead of its order.
func (d *diary) event(_ context.Context, e pawl.Event) {
	key := e.Key
	if key == "" {
		d.mu.Lock()
		key = d.keys[e.JobID]
		if slices.Contains(ends, string(e.Kind)) {
			delete(d.keys, e.JobID)
		}
		d.mu.Unlock()
	}
	d.write(entry{Kind: string(e.Kind), Key: key, Fence: e.Fence})
}

func (d *diary) write(e entry) {
	if e.Key == "" {
		return
	}
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, _ = d.out.Write(append(line, '\n'))
}
