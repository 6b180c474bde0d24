package sqs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/flow"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/sqs"
	"github.com/pawl-go/pawl/transport/sqs/sqstest"
)

// The whole pipeline on virtual time, with a real PostgreSQL: a handler of ten minutes, whose message nobody else receives, and one
// effect. A goroutine that waits for a socket holds the clock until it has its answer; there is no LISTEN, which would hold it
// for ever.
func TestVirtualTime_WithPostgres(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t, "create table effect (key text not null)") // its server lives outside the bubble
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, sqs.Config{})
		f.send("order-1")
		pool, err := pgxpool.New(t.Context(), url)
		f.must(err)
		defer pool.Close()
		consumer, err := flow.New(pool, flow.Config{Consumer: "orders", Source: f.source, Timeout: time.Hour, Concurrency: 1, RetryConcurrency: 1,
			Presence: job.Presence{Off: true}, Handler: func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
				time.Sleep(10 * time.Minute)
				return apply(ctx, tx, d)
			}})
		f.must(err)
		ctx, stop := context.WithTimeout(t.Context(), 11*time.Minute)
		defer stop()
		f.must(consumer.Run(ctx))
		var effects int
		f.must(pool.QueryRow(t.Context(), "select count(*) from effect").Scan(&effects))
		if got := f.server.Stats("q"); effects != 1 || got.Received != 1 || got.Deleted != 1 {
			t.Errorf("%d effects, server %+v", effects, got)
		}
	})
}
