package metrics_test

import (
	"context"
	"errors"
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
	"github.com/pawl-go/pawl/observe"
	"github.com/pawl-go/pawl/observe/internal/metrics"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schema"
)

// A bed is a database, and the errors that were reported of reading it.
type bed struct {
	*testing.T
	pool *pgxpool.Pool

	mu   sync.Mutex
	errs []string
}

func setup(t *testing.T, schema ...string) *bed {
	t.Helper()
	return &bed{T: t, pool: pawltest.DB(t, schema...)}
}

func (b *bed) exec(statement string) {
	b.Helper()
	if _, err := b.pool.Exec(b.Context(), statement); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) open(o observe.DatabaseOptions) *metrics.Database {
	b.Helper()
	o.Hooks = pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.errs = append(b.errs, fmt.Sprintf("%s %s %s %v", e.Kind, e.Op, e.Scope, e.Err))
	}}
	d, err := metrics.NewDatabase(b.pool, o)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// texts returns the samples in the format of a scrape, with durations cut to minutes.
func (b *bed) texts(d *metrics.Database) (all []string) {
	b.Helper()
	for _, s := range d.Gauges(b.Context()) {
		if s.Metric.Name == metrics.ReadSeconds.Name {
			continue
		}
		if s.Metric.Unit == "s" {
			s.Value = float64(int(s.Value / 60))
		}
		all = append(all, fmt.Sprintf("%s %s %v", s.Metric.OTel, strings.Join(s.Labels, ","), s.Value))
	}
	slices.Sort(all)
	return all
}

const rows = `
insert into pawl.job (queue, kind, payload, status, created_at, available_at, lane_id, position, lane_head)
select d.queue, 'k', '', d.status, now() - d.minutes * interval '1 minute', now() - d.minutes * interval '1 minute', d.lane, d.lane, d.lane is not null
  from (values ('mail', 'pending', 3, null), ('mail', 'dead_letter', 9, 1), ('outbox/main', 'pending', 5, null), ('outbox/main', 'dead_letter', 50, null),
               ('outbox/idle', 'cancelled', 70, null)) as d (queue, status, minutes, lane);
insert into pawl.worker (name, report) values ('w', '{"wakeups": "on"}')`

// The gauges show the content of the database, and pawl_reader may read it.
func TestDatabase_ReadsWhatThereIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(rows)
	want := []string{
		"pawl.blocked_lanes mail 1", "pawl.blocked_lanes outbox/main 0",
		"pawl.database.read.up commands 1", "pawl.database.read.up dead 1", "pawl.database.read.up due 1", "pawl.database.read.up jobs 1", "pawl.database.read.up workers 1",
		"pawl.dead_letters mail,dead_letter 1", "pawl.dead_letters outbox/main,dead_letter 1",
		"pawl.jobs mail,dead_letter 1", "pawl.jobs mail,pending 1", "pawl.jobs outbox/idle,cancelled 1", "pawl.jobs outbox/main,dead_letter 1", "pawl.jobs outbox/main,pending 1",
		"pawl.oldest_due_age mail 3", "pawl.oldest_due_age outbox/main 5",
		"pawl.outbox.lag idle 0", "pawl.outbox.lag main 5", "pawl.outbox.pending idle 0", "pawl.outbox.pending main 1",
		"pawl.stale_commands processing 0", "pawl.stale_commands unknown 0",
		"pawl.worker.wakeups off 0", "pawl.worker.wakeups on 1",
		"pawl.workers alive 1", "pawl.workers silent 0",
	}
	if got := b.texts(b.open(observe.DatabaseOptions{})); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, m := range metrics.Gauges() { // each must have a sample here
		if m.Name != metrics.ReadSeconds.Name && !slices.ContainsFunc(want, func(s string) bool { return strings.HasPrefix(s, m.OTel+" ") }) {
			t.Errorf("%s is not tested", m.Name)
		}
	}
}

// A sink with a running relay has the gauge 0 while there is nothing to publish. So an alert on a
// missing series can distinguish it from a database that is not read. A sink without a relay has
// gauges only while it has events.
func TestDatabase_AnIdleOutboxIsZeroAndNotAbsent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	relay, err := outbox.NewRelay(b.pool, outbox.Config{SinkName: "quiet", Sink: outbox.Func(func(context.Context, pawl.Message) error { return nil })})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	b.exec(`insert into pawl.worker (name, queues, seen_at) values ('gone', '["outbox/gone"]', now() - interval '1 hour')`)
	b.exec(`insert into pawl.worker (name, queues) values ('w', '["mail", "outbox/other"]')`)
	d := b.open(observe.DatabaseOptions{Every: time.Second})
	var got []string
	patience.Until(t, "the gauges of both outboxes are at 0", func() bool {
		got = nil
		for _, text := range b.texts(d) {
			if strings.HasPrefix(text, "pawl.outbox.") {
				got = append(got, text)
			}
		}
		return slices.Equal(got, []string{"pawl.outbox.lag other 0", "pawl.outbox.lag quiet 0", "pawl.outbox.pending other 0", "pawl.outbox.pending quiet 0"})
	})
}

// Every metric has a unit other than "1", because exporters to Prometheus append _ratio to a gauge
// with that unit.
func TestMetrics_HaveUnits(t *testing.T) {
	t.Parallel()
	for _, m := range metrics.Metrics() {
		if m.Unit == "" || m.Unit == "1" {
			t.Errorf("%s has the unit %q", m.Name, m.Unit)
		}
	}
}

// With any number of scrapes, the database is read only once in an interval.
func TestDatabase_ScrapesDoNotAddUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.open(observe.DatabaseOptions{Every: time.Hour})
	before := len(b.texts(d))
	b.exec(rows)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if n := len(b.texts(d)); n != before {
				t.Errorf("%d samples, want the %d of the first reading", n, before)
			}
		})
	}
	all.Wait()
}

// If a table cannot be read in time, here because it is locked, only its own gauges are missing.
// The server cancels the read, the error is reported, and the read is not repeated at once.
func TestDatabase_IsGivenUpInTime(t *testing.T) {
	t.Parallel()
	// the other reads may take longer on a busy machine
	for limit := 300 * time.Millisecond; !givenUpWithin(t, limit); limit *= 2 {
		if limit > time.Minute {
			t.Fatal("the other reads were never made")
		}
	}
}

// givenUpWithin reports whether there was time for all reads, one of which meets a locked table.
func givenUpWithin(t *testing.T, limit time.Duration) bool {
	t.Helper()
	b := setup(t)
	b.exec(rows)
	d := b.open(observe.DatabaseOptions{Every: time.Hour, Timeout: limit})
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "lock table pawl.command"); err != nil {
		t.Fatal(err)
	}
	got := b.texts(d)
	b.mu.Lock()
	short := slices.ContainsFunc(b.errs, func(s string) bool {
		return strings.Contains(s, "left no time") && !strings.HasPrefix(s, "error observe.read jobs ")
	})
	b.mu.Unlock()
	if short {
		return false
	}
	for _, want := range []string{"pawl.database.read.up commands 0", "pawl.database.read.up dead 1", "pawl.workers alive 1"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %v", want, got)
		}
	}
	if slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "pawl.stale_commands") }) {
		t.Errorf("a gauge without a reading: %v", got)
	}
	b.mu.Lock()
	reported := slices.ContainsFunc(b.errs, func(s string) bool {
		return strings.HasPrefix(s, "error observe.read commands ") && strings.Contains(s, "57014")
	})
	b.mu.Unlock()
	if !reported {
		t.Errorf("reported %v", b.errs)
	}
	_ = tx.Rollback(t.Context())
	if got := b.texts(d); !slices.Contains(got, "pawl.database.read.up commands 0") {
		t.Errorf("asked again at once: %v", got)
	}
	return true
}

// If the database is unreachable, a scrape takes its time limit once, not once for every read.
func TestDatabase_UnreachableTakesOneTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.open(observe.DatabaseOptions{Timeout: 200 * time.Millisecond})
	busy := make([]*pgxpool.Conn, b.pool.Config().MaxConns) // no connection is free
	for i := range busy {
		var err error
		if busy[i], err = b.pool.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer busy[i].Release()
	}
	got := b.texts(d)
	if n := b.pool.Stat().CanceledAcquireCount(); n != 1 || len(got) != len(metrics.Reads()) {
		t.Errorf("%d samples after %d waits for a connection: %v", len(got), n, got)
	}
}

// The role pawl_reader may do all of it.
func TestDatabase_NeedsOnlyPawlReader(t *testing.T) {
	t.Parallel()
	b := setup(t, schema.Roles(), rows)
	config := b.pool.Config()
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "set role pawl_reader")
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	reader := &bed{T: t, pool: pool}
	got := reader.texts(reader.open(observe.DatabaseOptions{}))
	if len(reader.errs) > 0 || !slices.Contains(got, "pawl.jobs mail,pending 1") {
		t.Errorf("%v, %v", got, reader.errs)
	}
}

func TestNewDatabase_RefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	pool := setup(t).pool
	for _, o := range []observe.DatabaseOptions{{Every: time.Millisecond}, {Timeout: -1}, {Without: []string{"everything"}}} {
		if _, err := metrics.NewDatabase(pool, o); pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
			t.Errorf("%+v: %v", o, err)
		}
	}
	d, err := metrics.NewDatabase(pool, observe.DatabaseOptions{Without: []string{"jobs", "due", "dead", "workers", "commands"}})
	if err != nil || len(d.Gauges(t.Context())) != 0 {
		t.Errorf("%v", err)
	}
}
