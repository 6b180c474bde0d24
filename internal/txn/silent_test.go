package txn_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/pawltest"
)

// A server that stops answering, for example because its machine died, counts as unreachable: a
// claim does not wait until the system breaks the connection. After one connection was silent, the
// pool hands out no other connections to that server.
func TestOpener_ASilentServerIsAway(t *testing.T) {
	t.Parallel()
	for name, pings := range map[string]bool{"to a claim": false, "to the pool's ping": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, through := wireproxy.Start(t, pawltest.URL(t, rows))
			config, err := pgxpool.ParseConfig(through)
			if err != nil {
				t.Fatal(err)
			}
			config.MaxConns = 3
			config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return pings }
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			var open []*txn.Opened
			for range config.MaxConns {
				open = append(open, begin(t, pool))
			}
			for _, tx := range open {
				txn.Rollback(t.Context(), tx)
			}

			thaw := proxy.Freeze()
			defer thaw()
			_, err = txn.Opener{Pool: pool, Limit: 300 * time.Millisecond}.Open(t.Context(), "x.begin", "", time.Minute, queued("insert into mark values (1)"))
			if !pawl.Unreachable(err) || !pawl.Retryable(err) || pawl.MayHaveHappened(err) {
				t.Errorf("it is not away: %v", err)
			}
			if !pings { // the pool itself drops a connection whose ping fails
				// without a connection that the pool is establishing, which connect_timeout ends
				kept := func() int32 {
					stat := pool.Stat()
					return stat.TotalConns() - stat.ConstructingConns()
				}
				patience.Until(t, "the pool keeps no connection to a silent server", func() bool { return kept() == 0 })
			}
		})
	}
}
