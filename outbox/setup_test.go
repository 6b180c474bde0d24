package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
)

// A bed is a database with an outbox, and the messages that its sink got.
type bed struct {
	*testing.T
	url      string
	pool     *pgxpool.Pool
	counters pawl.Counters

	mu     sync.Mutex
	got    []pawl.Message // accepted, in the order of acceptance
	refuse func(m pawl.Message) error
}

func setup(t *testing.T, schema ...string) *bed {
	t.Helper()
	b := &bed{T: t, url: pawltest.URL(t, schema...)}
	b.pool = poolOf(t, b.url)
	return b
}

func poolOf(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) begin() pgx.Tx {
	b.Helper()
	tx, err := b.pool.Begin(b.Context())
	b.must(err)
	b.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// append appends events in one transaction that commits.
func (b *bed) append(events ...outbox.Event) (answers []outbox.Appended) {
	b.Helper()
	b.must(pgx.BeginFunc(b.Context(), b.pool, func(tx pgx.Tx) (err error) {
		answers, err = outbox.Append(b.Context(), tx, events...)
		return err
	}))
	return answers
}

// refusal appends events in a transaction, rolls it back and returns the error of Append.
func (b *bed) refusal(events ...outbox.Event) error {
	b.Helper()
	tx, err := b.pool.Begin(b.Context())
	b.must(err)
	_, err = outbox.Append(b.Context(), tx, events...)
	b.must(tx.Rollback(b.Context()))
	return err
}

// event returns an event of aggregate order/of with the payload what.
func event(of, what string) outbox.Event {
	return outbox.Event{Type: "Changed", AggregateType: "order", AggregateID: of, Payload: []byte(what)}
}

// Publish accepts messages for which refuse returns nil.
func (b *bed) Publish(_ context.Context, ms []pawl.Message) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := make([]error, len(ms))
	for i, m := range ms {
		if b.refuse != nil {
			errs[i] = b.refuse(m)
		}
		if errs[i] == nil {
			b.got = append(b.got, m)
		}
	}
	return errs
}

func (b *bed) refusing(fn func(m pawl.Message) error) {
	b.mu.Lock()
	b.refuse = fn
	b.mu.Unlock()
}

// accepted returns the payloads that the sink has accepted.
func (b *bed) accepted() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.got {
		all = append(all, string(m.Payload))
	}
	return all
}

// relay starts a relay to the bed with short intervals, which change may override. stop stops it.
func (b *bed) relay(change ...func(*outbox.Config)) (r *outbox.Relay, stop func()) {
	b.Helper()
	cfg := outbox.Config{Sink: b, Poll: 10 * time.Millisecond, Probe: 50 * time.Millisecond, Presence: job.Presence{Off: true},
		Backoff: job.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond},
		Hooks: pawl.Join(b.counters.Hooks(), pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			if e.Err != nil {
				b.Logf("%s %s %d: %v", e.Kind, e.Op, e.JobID, e.Err)
			}
		}})}
	for _, c := range change {
		c(&cfg)
	}
	r, err := outbox.NewRelay(b.pool, cfg)
	b.must(err)
	return r, b.run(r)
}

func (b *bed) run(r *outbox.Relay) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		b.Helper()
		cancel()
		b.must(patience.Receive(b, "Run has returned", done))
	})
	b.Cleanup(stop)
	return stop
}

// wait polls a condition.
func (b *bed) wait(what string, reached func() bool) {
	b.Helper()
	defer func() {
		if b.Failed() {
			b.Logf("accepted are %.500s; pending are %s", fmt.Sprint(b.accepted()), b.pending())
		}
	}()
	patience.Until(b, what, reached)
}

// wakes appends events to an idle relay until a notification wakes it. A rare poll may find an
// event first. Five in a row mean that no notification came.
func (b *bed) wakes(what string, appendEvent func()) {
	b.Helper()
	for range 5 {
		patience.Row(b, b.pool, "a relay is announced as asleep", `select exists (select from pg_locks as l where l.locktype = 'advisory' and l.classid = 1885435767 and l.granted
 and l.database = (select d.oid from pg_database as d where d.datname = current_database()))`)
		woken, before := b.counters.Count(pawl.EventWoken), len(b.accepted())
		appendEvent()
		b.wait(what, func() bool { return len(b.accepted()) > before })
		if b.counters.Count(pawl.EventWoken) > woken {
			return
		}
	}
	b.Errorf("%s: polls found the event, and no notification did", what)
}

// untilAccepted waits for n accepted events and returns all payloads.
func (b *bed) untilAccepted(n int) []string {
	b.Helper()
	b.wait(fmt.Sprintf("%d events published", n), func() bool { return len(b.accepted()) >= n })
	return b.accepted()
}

func (b *bed) untilDone() {
	b.Helper()
	b.wait("nothing pending", func() bool {
		return b.count("select count(*) from pawl_v1.outbox_pending where status <> 'dead_letter'") == 0
	})
}

func (b *bed) pending() (text string) {
	err := b.pool.QueryRow(context.Background(), `select coalesce(string_agg(p.what, '; '), 'none')
  from (select format('%s %s/%s %s %s', job_id, aggregate_type, aggregate_id, status, attempt_count) as what
          from pawl_v1.outbox_pending order by job_id limit 20) as p`).Scan(&text)
	if err != nil {
		return err.Error()
	}
	return text
}

func (b *bed) count(query string, args ...any) (n int) {
	b.Helper()
	b.must(b.pool.QueryRow(b.Context(), query, args...).Scan(&n))
	return n
}

func (b *bed) wantCount(query string, want int) {
	b.Helper()
	if got := b.count(query); got != want {
		b.Errorf("%s: %d, want %d", query, got, want)
	}
}

// want requires these payloads, in any order.
func (b *bed) want(want ...string) {
	b.Helper()
	got := b.accepted()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.Errorf("published %s, want %s", strings.Join(got, " "), strings.Join(want, " "))
	}
}

// wantInOrder requires these payloads in this order.
func (b *bed) wantInOrder(want ...string) {
	b.Helper()
	if got := b.accepted(); !slices.Equal(got, want) {
		b.Errorf("published %s, want %s", strings.Join(got, " "), strings.Join(want, " "))
	}
}
