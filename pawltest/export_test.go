package pawltest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
)

// DrainWithin is Drain with other limits.
func DrainWithin(tb testing.TB, pool *pgxpool.Pool, cfg job.Config, limit time.Duration, most int) Drained {
	return (&drain{limit: limit, most: most}).run(tb, pool, cfg)
}

// ConsumeWithin is Consume with another limit.
func ConsumeWithin(tb testing.TB, pool *pgxpool.Pool, cfg consumer.Config, limit time.Duration) *pawl.Counters {
	return consume(tb, pool, cfg, limit)
}
