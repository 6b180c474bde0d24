//go:build proof

package sizing_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawl-go/pawl/cmd/pawl/internal/sizing"
	"github.com/pawl-go/pawl/pawltest"
)

const (
	messages  = 20_000
	tolerance = 0.20
)

// A run of messages, one transaction each, takes the computed rows, octets and WAL, within a fifth.
// So does its purge.
func TestNeeds_AgreeWithARun(t *testing.T) {
	t.Parallel()
	// The subtests run one after the other, because WAL is measured for the whole server, which
	// belongs to this test.
	for name, c := range map[string]struct {
		load sizing.Load
		key  func(i int, r *rand.Rand) string
	}{
		"growing keys": {sizing.Load{Key: 36, Consumer: 6}, func(i int, _ *rand.Rand) string { return fmt.Sprintf("order-%030d", i) }},
		"random keys": {sizing.Load{Key: 36, Consumer: 6, Random: true},
			func(_ int, r *rand.Rand) string { return fmt.Sprintf("%016x-%016x-00", r.Uint64(), r.Uint64()) }},
		"short keys": {sizing.Load{Key: 8, Consumer: 6}, func(i int, _ *rand.Rand) string { return fmt.Sprintf("%08d", i) }},
		"long keys":  {sizing.Load{Key: 100, Consumer: 12}, func(i int, _ *rand.Rand) string { return fmt.Sprintf("%0100d", i) }},
	} {
		t.Run(name, func(t *testing.T) {
			l := c.load
			l.PerSecond, l.Remember, l.Capacity, l.Processes = 100, messages/100*time.Second, 1000, 1
			if err := l.Validate(); err != nil {
				t.Fatal(err)
			}
			want := l.Needs()
			r := rand.New(rand.NewPCG(1, 2))
			pool := pawltest.DB(t)
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			ask := func(query string) (n float64) {
				t.Helper()
				if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
					t.Fatalf("%s: %v", query, err)
				}
				return n
			}
			exec := func(statement string, args ...any) {
				t.Helper()
				if _, err := conn.Exec(t.Context(), statement, args...); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			wal := func() float64 { return ask("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8") }
			consumer := "abcdefghijklmnop"[:l.Consumer]
			exec("alter table pawl.inbox set (autovacuum_enabled = off)")
			before := wal()
			for i := range messages {
				exec("select from pawl_v1.inbox_claim($1, $2, sha256('x'))", consumer, c.key(i, r))
			}
			claims := wal() - before
			sizes := map[string]struct{ got, want float64 }{
				"rows":              {ask("select count(*)::float8 from pawl.inbox"), want.Rows},
				"heap":              {ask("select pg_relation_size('pawl.inbox')::float8"), want.HeapOctets},
				"the index of keys": {ask("select pg_relation_size('pawl.inbox_pkey')::float8"), want.KeyOctets},
				"the index of ages": {ask("select pg_relation_size('pawl.inbox_age')::float8"), want.AgeOctets},
			}
			exec("update pawl.inbox set received_at = received_at - interval '90 days', processed_at = processed_at - interval '90 days'")
			exec("vacuum pawl.inbox")
			before = wal()
			for purged := 1.0; purged > 0; {
				purged = ask("select p.purged::float8 from pawl_v1.inbox_purge('" + consumer + "', 2592000000, 1000, '{\"unreported\": true}') as p")
			}
			exec("vacuum pawl.inbox")
			sizes["WAL of claims and purge"] = struct{ got, want float64 }{claims + wal() - before, want.WALPerSecond * l.Remember.Seconds()}
			t.Logf("WAL a message: claim %.0f, purge %.0f", claims/messages, (wal()-before)/messages)
			for what, c := range sizes {
				t.Logf("%s: %.0f, computed %.0f", what, c.got, c.want)
				if c.got < c.want*(1-tolerance) || c.got > c.want*(1+tolerance) {
					t.Errorf("%s: %.0f, computed %.0f", what, c.got, c.want)
				}
			}
		})
	}
}
