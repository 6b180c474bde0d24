//go:build proof

package pawlrabbitmq_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

// If Key panics, the message is a dead letter of Pawl, and the delivery limit drops no other.
func TestSource_KeyPanics(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, "create table effect (key text)")
	f := setup(t, quorum("x-delivery-limit", 2), pawlrabbitmq.Config{Key: pawlrabbitmq.KeyFunc(func(d *amqp.Delivery) string {
		key := pawlrabbitmq.DefaultKey().KeyOf(d)
		if key == "bad" {
			panic("boom")
		}
		return key
	})})
	counters := &pawl.Counters{}
	c, err := consumer.New(pool, consumer.Config{Name: "orders", Source: f.source, Hooks: counters.Hooks(), Concurrency: 1, RetryConcurrency: 1,
		Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
			_, err := tx.Exec(ctx, "insert into effect values ($1)", m.Key)
			return err
		})})
	f.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- c.Run(ctx) }()
	f.send("1", "2", "bad", "3", "4")
	patience.Row(t, pool, "four effects and one dead letter", `select (select count(*) from effect) = 4
		and (select count(*) from pawl_v1.dead_letters as d where d.last_error like '%Config.Key: panic: boom, at %') = 1`)
	patience.Until(t, "the queue is empty", func() bool { return f.waiting() == 0 })
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}
