//go:build proof

package pawlkafka_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlkafka"
)

// A record on which Key panics is dead-lettered, and later records of its partition take effect.
func TestSource_KeyPanics(t *testing.T) {
	t.Parallel()
	topic := createTopic(t, addr(t), 1, nil)
	source, err := pawlkafka.Open(t.Context(), quick(addr(t)), unique(t), []string{topic}, pawlkafka.Config{
		Key: pawlkafka.KeyFunc(func(r pawlkafka.Record) string { return string(r.Raw.Headers[0].Value) })})
	if err != nil {
		t.Fatal(err)
	}
	pool := pawltest.DB(t, "create table effect (key text)")
	c, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source, Retention: consumer.Retention{Forever: true}, Concurrency: 1, RetryConcurrency: 1,
		Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
			_, err := tx.Exec(ctx, "insert into effect values ($1)", m.Key)
			return err
		})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- c.Run(ctx) }()
	produce(t, addr(t), keyed(topic, 0, "1"), &kgo.Record{Topic: topic, Value: []byte("no header")}, keyed(topic, 0, "2"))
	patience.Row(t, pool, "two effects and one dead letter", `select (select count(*) from effect) = 2
		and (select count(*) from pawl_v1.dead_letters as d where d.last_error like '%Config.Key: panic: runtime error: index out of range%') = 1`)
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}
