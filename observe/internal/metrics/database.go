package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/observe"
)

// rest bounds the load on the database: a read is repeated only after this many times its own
// duration.
const rest = 20

// slack is what a call may take beyond its reads, for a connection and the network.
const slack = time.Second

// A Database reads gauges no more often than its options allow, and one read at a time. It uses one
// connection of the pool while it reads. Its methods are safe for concurrent use.
type Database struct {
	pool    *pgxpool.Pool
	options observe.DatabaseOptions

	mu      sync.Mutex
	results []*result
}

// A Sample is one number.
type Sample struct {
	Metric Metric
	Labels []string // label values, in the order of Metric.Labels
	Value  float64
}

// NewDatabase checks the options. It reads nothing yet. The pool's role needs the rights of
// pawl_reader.
func NewDatabase(pool *pgxpool.Pool, o observe.DatabaseOptions) (*Database, error) {
	if pool == nil {
		return nil, &pawl.Error{Op: "observe.database", Code: pawl.CodeArgumentInvalid, Err: errors.New("the pool is missing")}
	}
	o.Every = cmp.Or(o.Every, 15*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 2*time.Second)
	if o.Every < time.Second || o.Timeout < time.Millisecond {
		return nil, badOption(fmt.Errorf("the field Every must be at least 1s and Timeout 1ms, they are %v and %v", o.Every, o.Timeout))
	}
	d := &Database{pool: pool, options: o}
	for _, r := range Reads() {
		if !slices.Contains(o.Without, r.Name) {
			d.results = append(d.results, &result{read: r})
		}
	}
	for _, name := range o.Without {
		if !slices.ContainsFunc(Reads(), func(r Read) bool { return r.Name == name }) {
			return nil, badOption(fmt.Errorf("the field Without has %q, which is no read", name))
		}
	}
	return d, nil
}

func badOption(err error) error {
	return &pawl.Error{Op: "observe.database", Code: pawl.CodeArgumentInvalid, Err: err}
}

// Gauges returns the gauges. It repeats reads whose results are older than Every. Gauges of a
// failed read are missing, and [ReadUp] is 0. A call waits while another one reads.
func (d *Database) Gauges(ctx context.Context) []Sample {
	d.mu.Lock()
	defer d.mu.Unlock()
	until := time.Now().Add(d.options.Timeout)
	var all []Sample
	for _, a := range d.results {
		if !time.Now().Before(a.next) {
			d.renew(ctx, a, until)
		}
		all = append(append(all, a.samples...), a.about()...)
	}
	return all
}

// An result is the latest result of a read.
type result struct {
	read    Read
	samples []Sample
	err     error
	took    time.Duration
	next    time.Time // earliest time of the next read
}

func (a *result) about() []Sample {
	up := 1.0
	if a.err != nil {
		up = 0
	}
	return []Sample{{ReadUp, []string{a.read.Name}, up}, {ReadSeconds, []string{a.read.Name}, a.took.Seconds()}}
}

func (d *Database) renew(ctx context.Context, a *result, until time.Time) {
	start := time.Now()
	a.samples, a.err = d.ask(ctx, a.read, until)
	a.took = time.Since(start)
	a.next = time.Now().Add(max(d.options.Every, rest*a.took))
	if a.err != nil {
		a.samples = nil
		d.options.Hooks.Emit(context.WithoutCancel(ctx), pawl.Event{Kind: pawl.EventError, Op: "observe.read", Scope: a.read.Name, Err: a.err})
	}
}

// ask reads in a read-only transaction with a statement_timeout. It continues after the end of ctx,
// so that the next caller gets the result.
func (d *Database) ask(ctx context.Context, r Read, until time.Time) (samples []Sample, err error) {
	left := time.Until(until).Milliseconds()
	if left < 1 {
		return nil, &pawl.Error{Op: "observe.read", Err: errNoTime, Hint: "raise Timeout, or leave a read out"}
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), until.Add(slack))
	defer cancel()
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, pawl.Wrap("observe.read", err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, fmt.Sprintf("set local statement_timeout = %d", left)); err != nil {
		return nil, pawl.Wrap("observe.read", err)
	}
	return r.ask(ctx, tx)
}

var errNoTime = errors.New("the reads before it left no time")
