package command_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/ops"
)

func TestSettle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for key, executed := range map[string]bool{"executed": true, "not executed": false} {
		b.begin(key, command.LeaseOptions{}).Close()
		b.exec(expire)
		_, err := b.leased(key, "p", command.LeaseOptions{}, commitOrder)
		b.wantError(err, pawl.ErrOutcomeUnknown)
		var fence int64
		b.must(b.pool.QueryRow(t.Context(), "select c.fence from pawl.command as c where c.key = $1", key).Scan(&fence))
		for _, want := range []ops.Outcome{ops.Settled, ops.Refused} {
			r, err := ops.CommandRef{Scope: "orders", Key: key, Fence: fence}.Settle(t.Context(), b.pool, ops.CommandVerdict{Executed: executed, Result: `{"id": 7}`}, ops.By{Actor: "ann", Reason: "asked"})
			if b.must(err); r.Outcome != want {
				t.Errorf("%s: %+v, want %s", key, r, want)
			}
		}
		r, err := b.once(key, "p", place("again"))
		b.must(err)
		if r.Replayed != executed || executed && r.Value.ID != 7 {
			t.Errorf("%s: %+v", key, r)
		}
	}
	b.wantOrders(1)
	b.want("select count(*) from pawl.audit", 2)
}

// A replay costs one round trip, whether the call opens the command or looks first.
func TestOnce_AReplayIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	// Each connection prepares statements once.
	for way, calls := range map[string]int{"open": 3, "look": 20} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			proxy, through := wireproxy.Start(t, setup(t).url)
			b := setupOn(t, through)
			// Other calls in the scope would decide whether to look first.
			once := func() (command.Result[order], error) {
				i := pawl.Intent{Scope: t.Name(), Key: "k", Fingerprint: pawl.FingerprintOf([]byte("p"))}
				return command.Once(t.Context(), b.pool, i, b.options(), place("one"))
			}
			for range calls {
				_, err := once()
				b.must(err)
				b.until("select count(*) from pg_stat_activity where datname = current_database() and state = 'idle in transaction'", 0)
				patience.Until(t, "the connection is back in the pool, for the next call", func() bool { return b.pool.Stat().AcquiredConns() == 0 })
			}
			var sent atomic.Int64
			proxy.Aim(func(message []byte) bool {
				// The caller does not wait for the rollback. The pool pings a connection that was
				// idle for more than a second.
				if m := string(message); !strings.Contains(m, "rollback") && !strings.Contains(m, "-- ping") {
					sent.Add(1)
				}
				return false
			})
			r, err := once()
			b.must(err)
			if !r.Replayed || sent.Load() != 1 {
				t.Errorf("%d messages, %+v", sent.Load(), r)
			}
		})
	}
}
