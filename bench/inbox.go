package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
)

// An endless source always has another message. It costs almost nothing and forgets acknowledged
// messages.
type endless struct{ acked atomic.Int64 }

func (s *endless) Receive(_ context.Context, limit int) ([]pawl.Delivery, error) {
	batch := make([]pawl.Delivery, limit)
	for i := range batch {
		key := strconv.FormatUint(rand.Uint64(), 10)
		batch[i] = pawl.Delivery{Key: key, MessageID: key, Payload: made}
	}
	return batch, nil
}

func (s *endless) Info() pawl.SourceInfo { return pawl.SourceInfo{} }

func (s *endless) Ack(_ context.Context, rs ...pawl.Receipt) error {
	s.acked.Add(int64(len(rs)))
	return nil
}

func (s *endless) Release(context.Context, time.Duration, ...pawl.Delivery) error { return nil }

// inboxOf measures a consumer that applies new messages, for as long as enqueueing is measured.
func inboxOf(config consumer.Config) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		source := &endless{}
		stop, err := b.consume(ctx, config, source)
		if err != nil {
			return r, err
		}
		defer stop()
		m, err := b.host.meter(ctx)
		if err != nil {
			return r, err
		}
		n, took := watched(ctx, s.enqueue, &source.acked)
		r.Value = float64(n) / took.Seconds()
		if err := m.charge(ctx, &r, int(n)); err != nil {
			return r, err
		}
		if err := stop(); err != nil {
			return r, err
		}
		return r, b.wantSeen(ctx, source.acked.Load())
	}
}

// consume starts a consumer and returns when it is warm. stop may be called twice.
func (b *bed) consume(ctx context.Context, config consumer.Config, source *endless) (stop func() error, err error) {
	config.Name, config.Source, config.Hooks = "bench", source, quiet
	config.RetryConcurrency, config.Presence = 1, job.Presence{Off: true}
	f, err := consumer.New(b.pool, config)
	if err != nil {
		return nil, err
	}
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	for source.acked.Load() < 500 { // statements are prepared and have their generic plans
		select {
		case err := <-ended:
			cancel()
			return nil, fmt.Errorf("the consumer has ended: %w", err)
		case <-time.After(time.Millisecond):
		}
	}
	return sync.OnceValue(func() error { cancel(); return <-ended }), nil
}

// wantSeen compares the database with the acknowledgements: each message is in the inbox once, with
// its effect.
func (b *bed) wantSeen(ctx context.Context, acked int64) error {
	var seen, effects int64
	err := b.pool.QueryRow(ctx, "select (select count(*) from pawl.inbox where processed_at is not null), (select count(*) from effect)").Scan(&seen, &effects)
	if err == nil && (seen != effects || effects < acked) {
		err = fmt.Errorf("%d acknowledged, %d seen, %d effects", acked, seen, effects)
	}
	return err
}

func applyOne(ctx context.Context, tx pgx.Tx, _ consumer.Message[[]byte]) error {
	_, err := tx.Exec(ctx, insertEffect, 1)
	return err
}

func applyMany(ctx context.Context, tx pgx.Tx, ds []consumer.Message[[]byte]) error {
	_, err := tx.Exec(ctx, insertEffects, make([]int64, len(ds)))
	return err
}

// The consumer's SQL, for one message and for a hundred.
const (
	inboxSQL = `\set key random(1, 9000000000000000000)
begin;
set local idle_in_transaction_session_timeout = 35000;
select c.outcome, c.result_ref, c.job_id, c.received_at, c.processed_at from pawl_v1.inbox_claim('bench', :key::text, sha256(:key::text::bytea)) as c;
savepoint pawl;
insert into effect (job, by) values (1, 'bench');
release savepoint pawl;
commit;
`
	inboxBatchSQL = `\set key random(1, 9000000000000000)
begin;
set local idle_in_transaction_session_timeout = 35000;
select count(*) from pawl_v1.inbox_claim_many('bench', array(select (:key::bigint * 1000 + g)::text from generate_series(1, 100) as g), array_fill(sha256('p'), '{100}')) as c;
savepoint pawl;
insert into effect (job, by) select g, 'bench' from generate_series(1, 100) as g;
release savepoint pawl;
commit;
`
)

// inboxPlans returns the rows of the inbox.
func inboxPlans() []plan {
	one := consumer.Config{Concurrency: inFlight, Handler: consumer.HandleTx(applyOne)}
	batch := consumer.Config{Concurrency: 4, Handler: consumer.HandleManyTx(applyMany).With(consumer.ManyTxPolicy{BatchSize: batchSize})}
	return []plan{
		{Row: Row{ID: "inbox", Title: "Messages that write one row, one transaction each, 32 in flight", Unit: messagesPerSec,
			Bars: []Bar{{Who: "Pawl", Of: "pgbench", Factor: 0.8}}},
			entries: []entry{
				{who("Pawl", "consumer, HandleTx"), pawlSystem, inboxOf(one)},
				{floor("the same SQL, 32 clients"), pawlSystem, floorFor(inboxSQL, inFlight, 1)},
			}},
		{Row: Row{ID: "inbox-batch", Title: "The same, up to 100 in a transaction", Unit: messagesPerSec,
			Bars: []Bar{{Who: "Pawl, batch", Of: "Pawl", Factor: 5}}},
			entries: []entry{
				{who("Pawl, batch", "consumer, HandleManyTx, 4 batches of up to 100"), pawlSystem, inboxOf(batch)},
				{who("Pawl", "consumer, HandleTx, 32 in flight"), pawlSystem, inboxOf(one)},
				{floor("the SQL of a batch of 100, 4 clients"), pawlSystem, floorFor(inboxBatchSQL, 4, batchSize)},
			}},
	}
}
