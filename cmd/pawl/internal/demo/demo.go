package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/checker"
	"github.com/pawl-go/pawl/internal/postgres"
	"github.com/pawl-go/pawl/transport/sqs/sqstest"
)

// Options of one run.
type Options struct {
	Messages      int     // orders, each one intent
	Duplicates    int     // times each order is sent on average
	Workers       int     // processes
	Kills         int     // SIGKILLs
	Poison        int     // orders among Messages that no handler can apply
	HandlerErrors float64 // of attempts: the handler fails, the delivery lands and is retried
	Seed          uint64
	DatabaseURL   string        // empty: a private server
	Keep          bool          // leave the database for a look
	Timeout       time.Duration // of the whole run
	Executable    string        // what to run as a worker process
}

// Validate reports the first option out of its bounds.
func (o Options) Validate() error {
	for _, b := range []struct {
		name             string
		value, low, high int
	}{
		{"messages", o.Messages, 1, 10_000_000}, {"duplicates", o.Duplicates, 1, 1000}, {"workers", o.Workers, 1, 32},
		{"kills", o.Kills, 0, 10_000}, {"poison", o.Poison, 0, o.Messages},
	} {
		if b.value < b.low || b.value > b.high {
			return fmt.Errorf("--%s must lie between %d and %d, it is %d", b.name, b.low, b.high, b.value)
		}
	}
	if o.HandlerErrors < 0 || o.HandlerErrors > 0.9 {
		return fmt.Errorf("--handler-errors must lie between 0 and 0.9, it is %v", o.HandlerErrors)
	}
	return nil
}

// A Report is what a run comes to; its JSON form is the demo's --json output.
type Report struct {
	checker.Verdict
	Deliveries         int64   `json:"deliveries"`          // messages SQS handed out
	DuplicatesAbsorbed int64   `json:"duplicates_absorbed"` // deliveries the workers recognised as seen
	Retried            int64   `json:"retried"`             // attempts that failed and were tried again from the database
	Kills              int     `json:"kills"`
	KilledAt           []Kill  `json:"killed_at"`
	Unsettled          int     `json:"unsettled"`  // messages and retries still open when nothing moved any more
	Seconds            float64 `json:"seconds"`    // from the first message sent to the last one settled
	PerSecond          float64 `json:"per_second"` // effects per second, over Seconds
	Seed               uint64  `json:"seed"`
	Database           string  `json:"database,omitempty"` // where to look, with --keep
}

const (
	queueName    = "orders"
	visibility   = 3 * time.Second // how long a killed worker's messages stay hidden
	lease        = 2 * time.Second
	connsAWorker = 10
)

// A run is one demo under way.
type run struct {
	Options
	display  Display
	database *pgx.Conn // the observer's
	sqs      *sqstest.Server
	endpoint string
	fleet    *fleet
	killer   *killer
	sent     []checker.Order
	schema   string // of the business tables
}

// Run plays one demo and judges it. The error is about not being able to; a broken promise is in the report.
func Run(ctx context.Context, o Options, display Display) (Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("not finished after %v (raise --timeout)", o.Timeout))
	defer cancel()
	r := &run{Options: o, display: display, schema: fmt.Sprintf("pawl_demo_%d_%d", os.Getpid(), o.Seed)}

	url, closeDatabase, err := r.openDatabase(ctx)
	if err != nil {
		return Report{}, err
	}
	defer closeDatabase()
	queue, err := r.openQueue(ctx)
	if err != nil {
		return Report{}, err
	}
	defer queue.Close()

	r.fleet = newFleet(o.Executable, workerConfig{DatabaseURL: url, Schema: r.schema, Endpoint: queue.URL, Seed: o.Seed, HandlerErrors: o.HandlerErrors})
	defer r.fleet.killAll()
	report, err := r.play(ctx)
	if ctx.Err() != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	if err == nil && o.Keep {
		report.Database = url
	}
	return report, err
}

// play sends, kills, waits for quiet, and judges.
func (r *run) play(ctx context.Context) (Report, error) {
	random := rand.New(rand.NewPCG(r.Seed, 0))
	r.sent = makeOrders(random, r.Messages, r.Poison)
	r.killer = newKiller(random, r.fleet, r.Kills)
	if err := r.fleet.start(ctx, r.Workers); err != nil {
		return Report{}, err
	}
	watch := r.watch(ctx)
	defer watch.stop()

	began := time.Now()
	producing := make(chan error, 1)
	go func() { producing <- r.produce(ctx, random) }()
	progress := newStall(stallAfter)
	for produced := false; !produced || !r.quiet(ctx); {
		select {
		case err := <-producing:
			if err != nil {
				return Report{}, fmt.Errorf("sending: %w", err)
			}
			produced = true
		case err := <-r.fleet.failed:
			return Report{}, err
		case <-ctx.Done():
			return Report{}, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		effects := int(watch.effects.Load())
		if progress.none(int64(effects) + r.sqs.Stats(queueName).Deleted) {
			break // stuck: judge what is there
		}
		r.killer.step(ctx, effects, r.Messages-r.Poison, r.queueEmpty())
	}
	seconds := time.Since(began).Seconds()
	unsettled := r.unsettled(ctx)
	if err := r.fleet.drain(ctx); err != nil {
		return Report{}, err
	}
	watch.stop()

	history, err := r.history(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("reading the result: %w", err)
	}
	verdict := checker.Judge(history)
	events := r.fleet.events
	return Report{Verdict: verdict, Deliveries: r.sqs.Stats(queueName).Received,
		DuplicatesAbsorbed: events.count("duplicate_skipped"), Retried: events.count("retryable"),
		Unsettled: unsettled, Kills: len(r.killer.done), KilledAt: r.killer.done,
		Seconds: round(seconds), PerSecond: round(float64(verdict.Effects) / seconds), Seed: r.Seed}, nil
}

func round(f float64) float64 { return float64(int64(f*100+0.5)) / 100 }

// OK reports whether the promise was kept.
func (r Report) OK() bool { return r.Verdict.OK() && r.Unsettled == 0 }

// quiet reports whether nothing is left to happen: every kill done, no message anywhere, no delivery waiting for a retry.
func (r *run) quiet(ctx context.Context) bool {
	return r.killer.finished() && r.queueEmpty() && r.unsettled(ctx) == 0
}

// queueEmpty reports that no message is anywhere in the queue. Before the first is sent that is not news.
func (r *run) queueEmpty() bool {
	s := r.sqs.Stats(queueName)
	return s.Sent > 0 && s.Ready+s.Delayed+s.InFlight == 0
}

// unsettled counts what is still open: messages in the queue and deliveries waiting for a retry.
func (r *run) unsettled(ctx context.Context) int {
	s := r.sqs.Stats(queueName)
	open := s.Ready + s.Delayed + s.InFlight
	var waiting int
	err := r.database.QueryRow(ctx, "select count(*) from pawl.job as j where j.queue = $1 and j.status <> 'dead_letter'",
		"inbox/"+r.schema).Scan(&waiting)
	if err != nil {
		return open + 1 // not known to be quiet
	}
	return open + waiting
}

// stallAfter is how long nothing may take effect or be deleted before the run is judged as it stands.
const stallAfter = 20 * time.Second

// A stall notices that a number has stopped growing.
type stall struct {
	limit time.Duration
	at    int64
	since time.Time
}

func newStall(limit time.Duration) *stall { return &stall{limit: limit, since: time.Now()} }

func (s *stall) none(n int64) bool {
	if n != s.at {
		s.at, s.since = n, time.Now()
	}
	return time.Since(s.since) > s.limit
}

// openDatabase starts or finds the database and makes the business tables.
func (r *run) openDatabase(ctx context.Context) (url string, closeAll func(), err error) {
	url, stop, err := r.server(ctx)
	if err != nil {
		return "", nil, err
	}
	if err = r.prepare(ctx, url); err != nil {
		stop()
		return "", nil, err
	}
	return url, func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if !r.Keep && r.DatabaseURL != "" {
			r.removeTraces(clean)
		}
		_ = r.database.Close(clean)
		stop()
	}, nil
}

// server returns the database's URL: the one given, or that of a private server with PostgreSQL's own, durable settings.
func (r *run) server(ctx context.Context) (url string, stop func(), err error) {
	if r.DatabaseURL != "" {
		return r.DatabaseURL, func() {}, nil
	}
	options := postgres.Options{Durable: true, Log: r.display.Note,
		Settings: map[string]string{"max_connections": fmt.Sprint(20 + 3*r.Workers*connsAWorker)}} // killed workers' sessions linger
	if r.Keep {
		if options.DataDir, err = os.MkdirTemp("", "pawl-demo-"); err != nil {
			return "", nil, err
		}
		options.DataDir = filepath.Join(options.DataDir, "postgres")
	}
	r.display.Note("starting a private PostgreSQL")
	server, err := postgres.Start(ctx, options)
	if err != nil {
		return "", nil, err
	}
	if r.Keep {
		r.display.Note("kept afterwards: pawl dev postgres --dir " + options.DataDir)
	}
	return server.URL("postgres"), func() { _ = server.Stop() }, nil
}

// openQueue starts the SQS in this process, with its faults, and makes the queue.
func (r *run) openQueue(ctx context.Context) (*sqstest.Listener, error) {
	r.sqs = sqstest.New(sqstest.Options{Faults: sqstest.Chaos(r.Seed, sqstest.Rates{
		Duplicate: 0.03, LoseDelete: 0.02, LoseReceive: 0.002, Error: 0.002, EntryError: 0.002, Reorder: true, AbandonedPolls: true,
	})})
	listener, err := r.sqs.Start()
	if err != nil {
		return nil, err
	}
	r.endpoint = listener.URL
	if err := createQueue(ctx, r.endpoint); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
