package schematest_test

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
)

// turnoverRows is the number of rows in TestPurge_CostsWhatItForgets. For the documented bar, set
// PAWL_TURNOVER_ROWS=10000000.
var turnoverRows = func() int {
	if n, err := strconv.Atoi(os.Getenv("PAWL_TURNOVER_ROWS")); err == nil {
		return n
	}
	return 30_000
}()

// After several turnovers of the table, a purge reads pages in proportion to the rows that it
// deletes. It reads almost nothing if no row is due, and the same for each batch of a backlog. By
// then the heap has free space in many pages, filled with rows of any age.
func TestPurge_CostsWhatItForgets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		table, insert, age, purge string
	}{
		{"inbox", "insert into pawl.inbox (consumer, key, hash, received_at, processed_at) select 'c', 'm' || n, sha256(''), AT, now()", "received_at",
			`inbox_purge('c', %d, 500, %s || '{"unreported": true}')`},
		{"delivery", "insert into pawl.delivery (consumer, key, payload, received_at) select 'c', 'm' || n, 'b', AT", "received_at", "delivery_purge('c', %d, 500, %s)"},
		{"job_key", "insert into pawl.job_key (queue, key, hash, job_id, created_at, expires_at) select 'q', 'k' || n, sha256(''), 0, AT, AT + interval '1 second'", "created_at",
			`job_key_purge(500, '{"older_than_ms": %d}' || %s)`},
		{"command", "insert into pawl.command (scope, key, hash, status, created_at, expires_at) select 's', 'k' || n, sha256(''), 'succeeded', AT, AT + interval '1 second'", "created_at",
			`command_purge(500, '{"older_than_ms": %d}' || %s)`},
		{"step", "insert into pawl.step (scope, key, step, hash, recovery, provider_key, status, created_at, expires_at) select 'job/q', 'k' || n, 's', sha256(''), 'keyed', 'p', 'succeeded', AT, AT + interval '1 second'", "created_at",
			`step_purge(500, '{"older_than_ms": %d}' || %s)`},
	} {
		t.Run(c.table, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, pawltest.URL(t, "alter table pawl."+c.table+" set (autovacuum_enabled = off)"))
			exec := func(statement string) {
				t.Helper()
				if _, err := conn.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			// Each turn ages the rows by a day, deletes a fifth, and inserts as many new rows into
			// the free space.
			day := turnoverRows / 5
			for turn := range 15 {
				exec(fmt.Sprintf("delete from pawl.%s as r where r.%s < now() - interval '5 days'", c.table, c.age))
				exec("vacuum pawl." + c.table)
				at := fmt.Sprintf("now() - interval '%d days' + n %% %d * interval '%d microseconds'", 15-turn, day, 80_000_000_000/day)
				exec(strings.ReplaceAll(c.insert, "AT", "("+at+")") + fmt.Sprintf(" from generate_series(%d, %d) as n", turn*day, (turn+1)*day-1))
			}
			exec(fmt.Sprintf("delete from pawl.%s as r where r.%s < now() - interval '5 days'", c.table, c.age))
			exec("vacuum analyze pawl." + c.table)
			exec("analyze pawl.job")
			batch := func(olderThan time.Duration, next *string) (purged int, pages int64) {
				t.Helper()
				since := "'{}'::jsonb"
				if *next != "" {
					since = "'{\"since\": \"" + *next + "\"}'::jsonb"
				}
				return purgeBatch(t, conn, c.table, fmt.Sprintf(c.purge, olderThan.Milliseconds(), since), next)
			}
			// A call that plans again, because the catalogue has changed meanwhile, also reads the
			// catalogue. So the first call does not count, and one of several may read more.
			none, least := "", int64(math.MaxInt64)
			for range 4 {
				purged, pages := batch(10*24*time.Hour, &none)
				if purged != 0 {
					t.Errorf("nothing is due: %d rows went", purged)
				}
				least = min(least, pages)
			}
			if least > 250 {
				t.Errorf("nothing is due: %d pages were read", least)
			}
			next, dear := "", 0
			began := time.Now()
			for n := range 4 {
				purged, pages := batch(time.Hour, &next)
				t.Logf("batch %d of a backlog of %d: %d rows, %d pages", n, turnoverRows, purged, pages)
				if purged != 500 {
					t.Errorf("batch %d of a backlog: %d rows went", n, purged)
				}
				if pages > 500*14+100 {
					dear++
				}
			}
			if dear > 1 {
				t.Errorf("%d of 4 batches of 500 read more than %d pages", dear, 500*14+100)
			}
			t.Logf("4 batches in %v", time.Since(began))
		})
	}
}

// purgeBatch runs a purge and counts the shared pages that it read.
func purgeBatch(t *testing.T, conn *pgx.Conn, table, call string, next *string) (purged int, pages int64) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Commit(t.Context()) }()
	var plan []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}
	if err := tx.QueryRow(t.Context(), "select count(*) from pawl."+table).Scan(&purged); err != nil {
		t.Fatal(err)
	}
	// The result is stored in a table, so that the measured run is the only one.
	if err := tx.QueryRow(t.Context(), "explain (analyze, buffers, format json) create temp table answer on commit drop as select p.purged, coalesce(p.detail ->> 'next', '') as next from pawl_v1."+call+" as p").Scan(&plan); err != nil {
		t.Fatal(call, err)
	}
	if err := tx.QueryRow(t.Context(), "select purged, next from answer").Scan(&purged, next); err != nil {
		t.Fatal(err)
	}
	return purged, plan[0].Plan.Hit + plan[0].Plan.Read
}
