package main

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/outbox"
)

// An outboxQueue is the outbox as a contender. A job is an event, and a worker publishes it to a
// sink in memory.
type outboxQueue struct {
	pool       *pgxpool.Pool
	aggregates int  // 0: unordered
	batches    bool // the sink accepts ordered batches
	appended   int
}

// outboxOf returns the outbox with a number of aggregates, with a sink that accepts ordered batches
// or one that does not.
func outboxOf(aggregates int, batches bool) system {
	return system{"outbox", installPawl, func(pool *pgxpool.Pool) (contender, error) {
		return &outboxQueue{pool: pool, aggregates: aggregates, batches: batches}, nil
	}}
}

// manyAggregates is the number of aggregates whose events fill the outbox in turn.
const manyAggregates = 10_000

func (q *outboxQueue) event(p payload) (outbox.Event, error) {
	body, err := json.Marshal(p)
	e := outbox.Event{Type: "Changed", Payload: body}
	if q.aggregates > 0 {
		e.AggregateType, e.AggregateID = "order", strconv.Itoa(q.appended%q.aggregates)
	}
	q.appended++
	return e, err
}

func (q *outboxQueue) enqueue(ctx context.Context, p payload) error {
	return pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error { return q.enqueueIn(ctx, tx, p) })
}

func (q *outboxQueue) enqueueIn(ctx context.Context, tx pgx.Tx, p payload) error {
	e, err := q.event(p)
	if err == nil {
		_, err = outbox.Append(ctx, tx, e)
	}
	return err
}

func (q *outboxQueue) enqueueMany(ctx context.Context, n int, p payload) error {
	events := make([]outbox.Event, n)
	for i := range events {
		var err error
		if events[i], err = q.event(p); err != nil {
			return err
		}
	}
	return pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
		_, err := outbox.Append(ctx, tx, events...)
		return err
	})
}

func (q *outboxQueue) waiting(ctx context.Context) (n int, err error) {
	err = q.pool.QueryRow(ctx, "select count(*) from pawl.job").Scan(&n)
	return n, err
}

// work starts one relay with its default settings.
func (q *outboxQueue) work(ctx context.Context, t task) (stop func(), err error) {
	var sink pawl.Sink = memorySink{t.started}
	if q.batches {
		sink = memoryLog{memorySink{t.started}}
	}
	relay, err := outbox.NewRelay(q.pool, outbox.Config{Sink: sink, Hooks: pawlHooks(t)})
	if err != nil {
		return nil, err
	}
	return working(ctx, "outbox", relay.Run), nil
}

// A memorySink accepts everything.
type memorySink struct{ started func(payload) }

func (s memorySink) Publish(_ context.Context, ms []pawl.Message) []error {
	for _, m := range ms {
		var p payload
		if s.started != nil && json.Unmarshal(m.Payload, &p) == nil {
			s.started(p)
		}
	}
	return nil
}

// A memoryLog accepts everything, also ordered batches of one aggregate.
type memoryLog struct{ memorySink }

func (s memoryLog) PublishBatch(ctx context.Context, ms []pawl.Message) (accepted int, err error) {
	s.Publish(ctx, ms)
	return len(ms), nil
}

// takeSQL is the least work of a queue in a table: claim by deleting, one batch per transaction.
const takeSQL = "begin;\nselect coalesce(array_agg(c.id), '{}') as ids from (select j.id from pawl.job as j where j.queue = 'bench' and j.status = 'pending'" +
	" order by j.priority, j.available_at, j.id limit 100 for update skip locked) as c \\gset\n" +
	"delete from pawl.job as j where j.id = any (:ids::bigint[]);\ncommit;\n"

func outboxPlans() []plan {
	const perSink = "claim, publish to a sink in memory, finish; one relay, default settings"
	return []plan{
		{Row: Row{ID: "outbox", Title: "Outbox: events published by one relay", Unit: perSec,
			Bars: []Bar{{Who: "Pawl", Factor: 15_000, Meaning: "≥ 15,000 events/s"}, {Who: "Pawl, batches", Factor: 30_000, Meaning: "≥ 30,000 events/s"},
				{Who: "Pawl, hot, batches", Factor: 10_000, Meaning: "≥ 10,000 events/s"}}},
			entries: []entry{
				{who("Pawl", "10,000 aggregates: "+perSink), outboxOf(manyAggregates, false), drain(noop, 40_000)},
				{who("Pawl, no order", "no aggregates"), outboxOf(0, false), drain(noop, 40_000)},
				{who("Pawl, hot", "1 aggregate: one event at a time"), outboxOf(1, false), drain(noop, 3_000)},
				{who("Pawl, batches", "10,000 aggregates; the sink takes ordered batches"), outboxOf(manyAggregates, true), drain(noop, 40_000)},
				{who("Pawl, hot, batches", "1 aggregate; the sink takes ordered batches"), outboxOf(1, true), drain(noop, 40_000)},
				{floor("claim 100 and delete them; 1 client"), pawlSystem, floorDrain(takeSQL, 1, batchSize, 40_000)},
			}},
		{Row: Row{ID: "outbox-pickup", Title: "Outbox: append to sink, idle relay", Unit: ms, Less: true,
			Bars: []Bar{{Who: "Pawl", Factor: 5, Meaning: "p50 ≤ 5 ms"}, {Who: "Pawl", Factor: 20, P99: true, Meaning: "p99 ≤ 20 ms"}}}, rounds: 1, abreast: true,
			entries: []entry{
				{who("Pawl", "Append; woken"), outboxOf(manyAggregates, false), pickupIdle(pickup{})},
				{who("Pawl, no order", "no aggregate; woken"), outboxOf(0, false), pickupIdle(pickup{})},
			}},
	}
}
