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
	Messages      int     // orders, each one intent
	Duplicates    int     // times each order is sent on average
	Workers       int     // processes
	Kills         int     // SIGKILLs
	Poison        int     // orders among Messages that no handler can apply
	Broker        string  // one of broker.Kinds
	Payments      bool    // orders come as webhooks; each is charged at a bank and mailed, and has an event; implies Pipeline
	Pipeline      bool    // the handler appends an event, which goes through a second queue and has an effect there
	HandlerErrors float64 // share of attempts whose handler fails; the delivery is stored and is retried
	Seed          uint64  // decides orders, faults, failures and the plan of kills
	DatabaseURL   string  // empty: a private server
	Keep          bool    // leave the database for a look
	Timeout       time.Duration
	Executable    string // what to run as a worker process
}

// maxSent bounds what the queue in this process may have to hold, at about 1 kB a message.
const maxSent = 5_000_000

// Validate reports the first option out of its bounds.
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
	if err := broker.Check(o.Broker); err != nil {
		return fmt.Errorf("--broker: %w", err)
	}
	if sent := o.Messages * o.Duplicates; sent > maxSent {
		return fmt.Errorf("--messages times --duplicates must not exceed %d, it is %d", maxSent, sent)
	}
	if !(o.HandlerErrors >= 0 && o.HandlerErrors <= 0.9) { // so that NaN is refused too
		return fmt.Errorf("--handler-errors must lie between 0 and 0.9, it is %v", o.HandlerErrors)
	}
	if o.Timeout < time.Second || o.Timeout > 24*time.Hour {
		return fmt.Errorf("--timeout must lie between 1s and 24h, it is %v", o.Timeout)
	}
	return nil
}

// A Report is what a run comes to; its JSON form is the demo's --json output.
type Report struct {
	checker.Verdict
	Deliveries         int64   `json:"deliveries"`          // messages that the broker handed out, or webhooks sent
	DuplicatesAbsorbed int64   `json:"duplicates_absorbed"` // deliveries the workers recognised as seen
	Retried            int64   `json:"retried"`             // attempts that failed and were tried again from the database
	Kills              int     `json:"kills"`
	KilledAt           []Kill  `json:"killed_at"`
	Unsettled          int     `json:"unsettled"`  // messages and retries still open when nothing moved any more
	Seconds            float64 `json:"seconds"`    // from the first message sent to the last one settled
	PerSecond          float64 `json:"per_second"` // effects per second, over Seconds
	Seed               uint64  `json:"seed"`
	Broker             string  `json:"broker"`
	Pipeline           bool    `json:"pipeline"` // whether there was a second hop
	Payments           bool    `json:"payments"` // whether there were calls
	ChargeRequests     int     `json:"charge_requests,omitempty"`
	MailRequests       int     `json:"mail_requests,omitempty"`
	Unknown            int     `json:"unknown"` // calls of which nobody could tell, until the provider was asked

	// With Keep: where the rows are. The URL is not in here, as it may hold a password.
	Schema    string `json:"schema,omitempty"`    // of the business tables; also the consumer's name in the inbox
	Directory string `json:"directory,omitempty"` // the private server's data
}

// OK reports whether the promise was kept.
func (r Report) OK() bool { return r.Verdict.OK() && r.Unsettled == 0 }

// Run plays one demo and judges it. The error is about not being able to; a broken promise is in the report.
func Run(ctx context.Context, o Options, display Display) (Report, error) {
	ctx, cancel := o.limit(ctx)
	defer cancel()
	report, err := run(ctx, o, display)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // what failed failed because we gave up
	}
	return report, err
}

func (o Options) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	late := fmt.Errorf("not finished after %v (raise --timeout)", o.Timeout)
	return context.WithTimeoutCause(ctx, o.Timeout, late)
}

func run(ctx context.Context, o Options, display Display) (_ Report, err error) {
	database, err := openDatabase(ctx, o, display)
	if err != nil {
		return Report{}, err
	}
	defer database.close(ctx)
	queues, err := broker.Open(ctx, broker.Options{Kind: o.Broker, Seed: o.Seed, Log: display.Note}, queueName, shipmentQueue)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, queues.Close()) }()
	o.Pipeline = o.Pipeline || o.Payments
	crew := newCrew(o.Executable, workerConfig{DatabaseURL: database.url, Schema: database.schema,
		Place: queues.Place(), Seed: o.Seed, HandlerErrors: o.HandlerErrors, Pipeline: o.Pipeline})
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
