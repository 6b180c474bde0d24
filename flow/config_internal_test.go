package flow

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
)

type noSource struct{ pawl.Source }

// By default handlers and retries together hold half the pool, so that a handler which takes a second connection finds one.
func TestConfig_HalfThePoolByDefault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ conns, fresh, retries int }{
		{4, 1, 1}, {8, 3, 1}, {10, 4, 1}, {16, 6, 2}, {20, 8, 2}, {64, 24, 8}, {100, 38, 12},
	} {
		config := Config{Consumer: "c", Source: noSource{}, Handler: func(context.Context, pgx.Tx, pawl.Delivery) error { return nil },
			Retention: inbox.Retention{Forever: true}}
		if err := config.complete(c.conns); err != nil || config.Concurrency != c.fresh || config.RetryConcurrency != c.retries {
			t.Errorf("a pool of %d: Concurrency %d, RetryConcurrency %d, %v; want %d and %d",
				c.conns, config.Concurrency, config.RetryConcurrency, err, c.fresh, c.retries)
		}
	}
	long := Config{Consumer: "c", Source: noSource{}, LongHandler: func(context.Context, *Attempt) error { return nil }}
	if err := long.complete(20); err != nil || long.Concurrency != 32 || long.RetryConcurrency != 2 {
		t.Errorf("a LongHandler: Concurrency %d, RetryConcurrency %d, %v", long.Concurrency, long.RetryConcurrency, err)
	}
}
