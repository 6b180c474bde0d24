package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/internal/testbed/checker"
)

// Options of one run.
type Options struct {
	Messages   int    // number of orders, each one intent
	Duplicates int    // average number of times each order is sent
	Workers    int    // number of worker processes
	Kills      int    // number of SIGKILLs
	Poison     int    // number of orders that no handler can apply
	Broker     string // one of broker.Kinds
	// Payments: orders arrive as webhooks, and each is charged, mailed and has an event. It implies
	// Pipeline.
	Payments bool
	Pipeline bool // the handler appends an event, which takes effect behind a second queue
	// HandlerErrors is the share of attempts whose handler fails; the delivery is stored and
	// retried.
	HandlerErrors float64
	Seed          uint64 // decides orders, faults, failures and kills
	DatabaseURL   string // empty: a private server
	Keep          bool   // keep the database after the run
	Timeout       time.Duration
	Executable    string // binary of the worker processes
}

// maxSent bounds the messages in this process's queue, at about 1 kB a message.
const maxSent = 5_000_000

// Validate returns an error about the first option out of bounds.
func (o Options) Validate() error {
	for _, b := range []struct {
		name             string
		value, low, high int
	}{
		{"messages", o.Messages, 1, 1_000_000}, {"duplicates", o.Duplicates, 1, 1000}, {"workers", o.Workers, 1, 32},
		{"kills", o.Kills, 0, 10_000}, {"poison", o.Poison, 0, o.Messages},
	} {
		if b.value < b.low || b.value > b.high {
			return fmt.Errorf("--%s must lie between %d and %d, it is %d", b.name, b.low, b.high, b.value)
		}
	}
	if _, err := broker.Named(o.Broker); err != nil {
		return fmt.Errorf("--broker: %w", err)
	}
	if sent := o.Messages * o.Duplicates; sent > maxSent {
		return fmt.Errorf("--messages times --duplicates must not exceed %d, it is %d", maxSent, sent)
	}
	if !(o.HandlerErrors >= 0 && o.HandlerErrors <= 0.9) { // refuses NaN, too
		return fmt.Errorf("--handler-errors must lie between 0 and 0.9, it is %v", o.HandlerErrors)
	}
	if o.Timeout < time.Second || o.Timeout > 24*time.Hour {
		return fmt.Errorf("--timeout must lie between 1s and 24h, it is %v", o.Timeout)
	}
	return nil
}

// A Report is the result of a run, and the JSON output of the demo.
type Report struct {
	checker.Verdict
	// Deliveries counts messages that the broker delivered, or webhooks sent.
	Deliveries int64 `json:"deliveries"`
	// DuplicatesAbsorbed counts deliveries that workers recognised as duplicates.
	DuplicatesAbsorbed int64 `json:"duplicates_absorbed"`
	// Retried counts failed attempts that were retried from the database.
	Retried  int64  `json:"retried"`
	Kills    int    `json:"kills"`
	KilledAt []Kill `json:"killed_at"`
	// Unsettled counts messages and retries left when nothing moved any more.
	Unsettled int `json:"unsettled"`
	// Seconds is the time from the first message sent to the last one settled.
	Seconds        float64 `json:"seconds"`
	PerSecond      float64 `json:"per_second"` // effects per second during Seconds
	Seed           uint64  `json:"seed"`
	Broker         string  `json:"broker"`
	Pipeline       bool    `json:"pipeline"` // whether there was a second queue
	Payments       bool    `json:"payments"` // whether there were calls
	ChargeRequests int     `json:"charge_requests,omitempty"`
	MailRequests   int     `json:"mail_requests,omitempty"`
	// Unknown counts calls with an unknown outcome until the provider was asked.
	Unknown int `json:"unknown"`

	// With Keep: where the rows are. The URL is left out, because it may hold a password.
	Schema    string `json:"schema,omitempty"`    // of the tables; also the consumer's name
	Directory string `json:"directory,omitempty"` // data directory of the private server
}

// OK reports whether the promise was kept.
func (r Report) OK() bool { return r.Verdict.OK() && r.Unsettled == 0 }

// Run plays one demo and judges it. An error means that it could not run; a broken promise is in
// the report.
func Run(ctx context.Context, o Options, display Display) (Report, error) {
	return limited(ctx, o, display, run)
}

// limited plays a demo within its timeout.
func limited[R any](ctx context.Context, o Options, display Display, play func(context.Context, Options, Display) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("not finished after %v (raise --timeout)", o.Timeout))
	defer cancel()
	report, err := play(ctx, o, display)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the other error is a consequence of the timeout or interrupt
	}
	return report, err
}

func run(ctx context.Context, o Options, display Display) (_ Report, err error) {
	database, err := openDatabase(ctx, o, display)
	if err != nil {
		return Report{}, err
	}
	defer database.close(ctx)
	kind, err := broker.Named(o.Broker)
	if err != nil {
		return Report{}, err
	}
	queues, err := kind.Open(ctx, broker.Options{Seed: o.Seed, Log: display.Note}, queueName, shipmentQueue)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, queues.Close()) }()
	o.Pipeline = o.Pipeline || o.Payments
	crew := newCrew(o.Executable, workerConfig{DatabaseURL: database.url, Schema: database.schema,
		Location: queues.Location(), Seed: o.Seed, HandlerErrors: o.HandlerErrors, Pipeline: o.Pipeline})
	defer crew.KillAll()
	game := newGame(o, display, database, queues, crew)
	if o.Payments {
		if err := game.openPayments(); err != nil {
			return Report{}, err
		}
		defer game.closePayments()
	}
	report, err := game.play(ctx)
	if err == nil && o.Keep {
		report.Schema, report.Directory = database.schema, database.directory
	}
	return report, err
}
