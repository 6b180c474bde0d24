package pawlredis_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/filter/pawlredis"
)

// Most deliveries of the source are duplicates. Redis saves the database most of their
// transactions.
func ExampleOpen() {
	_ = func(ctx context.Context, pool *pgxpool.Pool, source pawl.Source) error {
		filter, err := pawlredis.Open(&redis.UniversalOptions{Addrs: []string{"localhost:6379"}}, pawlredis.Config{})
		if err != nil {
			return err
		}
		defer filter.Close()
		c, err := consumer.New(pool, consumer.Config{
			Name: "readings", Source: source, Filter: filter,
			Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
				_, err := tx.Exec(ctx, "insert into readings (sensor, body) values ($1, $2)", m.Key, m.Value)
				return err
			}),
		})
		if err != nil {
			return err
		}
		return c.Run(ctx)
	}
}

var _ consumer.Filter = (*pawlredis.Filter)(nil)
