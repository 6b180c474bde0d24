package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// watermill-sql is a log with an offset for each consumer group: a subscriber locks the offset and hands out a batch, one message after
// the other, in one transaction. The handler can write in that transaction (TxFromContext), as the documentation's example of exactly-once
// delivery does. https://watermill.io/pubsubs/sql
var watermillSystem = system{"watermill", installWatermill, openWatermill}

const watermillTopic = "bench"

func watermillSchema(batch int) watermillsql.DefaultPostgreSQLSchema {
	return watermillsql.DefaultPostgreSQLSchema{SubscribeBatchSize: batch}
}

func installWatermill(_ context.Context, pool *pgxpool.Pool) error {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	subscriber, err := watermillSubscriber(db, 0, time.Second)
	if err != nil {
		return err
	}
	return subscriber.SubscribeInitialize(watermillTopic)
}

func watermillSubscriber(db *sql.DB, batch int, poll time.Duration) (*watermillsql.Subscriber, error) {
	return watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
		SchemaAdapter: watermillSchema(batch), OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{}, PollInterval: poll,
	}, watermill.NopLogger{})
}

type watermillQueue struct {
	pool      *pgxpool.Pool
	db        *sql.DB
	publisher *watermillsql.Publisher
	last      atomic.Int64 // number of a message
}

func openWatermill(pool *pgxpool.Pool) (contender, error) {
	db := stdlib.OpenDBFromPool(pool)
	publisher, err := watermillsql.NewPublisher(db, watermillsql.PublisherConfig{SchemaAdapter: watermillSchema(0)}, watermill.NopLogger{})
	return &watermillQueue{pool: pool, db: db, publisher: publisher}, err
}

// A numbered is a payload with the number that its row will carry.
type numbered struct {
	payload
	N int64 `json:"n"`
}

func (q *watermillQueue) message(p payload) (*message.Message, error) {
	body, err := json.Marshal(numbered{p, q.last.Add(1)})
	return message.NewMessage(watermill.NewUUID(), body), err
}

func (q *watermillQueue) enqueue(ctx context.Context, p payload) error {
	return q.enqueueMany(ctx, 1, p)
}

// enqueueIn would need a transaction of database/sql.
func (q *watermillQueue) enqueueIn(context.Context, pgx.Tx, payload) error { return errOtherProcess }

func (q *watermillQueue) enqueueMany(_ context.Context, n int, p payload) (err error) {
	messages := make([]*message.Message, n)
	for i := range messages {
		if messages[i], err = q.message(p); err != nil {
			return err
		}
	}
	return q.publisher.Publish(watermillTopic, messages...)
}

// watermillLeft are the numbers of the messages after the offset.
const watermillLeft = `select (m.payload ->> 'n')::bigint as job from watermill_bench as m
 where not exists (select from watermill_offsets_bench as o where (o.last_processed_transaction_id, o.offset_acked) >= (m.transaction_id, m."offset"))`

func (q *watermillQueue) waiting(ctx context.Context) (n int, err error) {
	err = q.pool.QueryRow(ctx, "select count(*) from ("+watermillLeft+") as l").Scan(&n)
	return n, err
}

func (q *watermillQueue) work(ctx context.Context, t task) (stop func(), err error) {
	batch, poll := 1000, 10*time.Millisecond
	if t.polite {
		batch, poll = 0, 0 // the defaults: 100, and every second
	}
	subscriber, err := watermillSubscriber(q.db, batch, poll)
	if err != nil {
		return nil, err
	}
	messages, err := subscriber.Subscribe(ctx, watermillTopic)
	if err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	running.Go(func() {
		for m := range messages {
			q.handle(m, t)
		}
	})
	return func() { _ = subscriber.Close(); running.Wait() }, nil
}

func (q *watermillQueue) handle(m *message.Message, t task) {
	var p numbered
	if err := json.Unmarshal(m.Payload, &p); err != nil {
		m.Nack()
		return
	}
	if t.started != nil {
		t.started(p.payload)
	}
	if t.form == effect {
		tx, _ := watermillsql.TxFromContext(m.Context())
		if _, err := tx.ExecContext(m.Context(), insertEffect, p.N); err != nil {
			m.Nack()
			return
		}
	}
	m.Ack()
	t.ended(1)
}
