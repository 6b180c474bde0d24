package dashboard_test

import (
	"net/http"
	"testing"
)

// With 100,000 dead letters, a page of a list reads little more than it shows. A page with a chart
// reads the minutes of its hour once or twice: 30,000 rows here. The form of a bulk action reads
// its selection. On a quiet machine each page takes less than 200 ms.
func TestPages_AreQuickWithManyDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.exec(`insert into pawl.job (queue, kind, payload, status, attempts, last_errors)
select 'q' || n % 3, 'k', '{}', 'dead_letter', 25, jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'attempt', 25, 'error', 'boom ' || n))
  from generate_series(1, 100000) as n`)
	b.exec(`insert into pawl.rollup (span, at, kind, source, scope, name, value)
select 'minute', date_trunc('minute', now(), 'UTC') - m * interval '1 minute', 'count', 'queue', 'q' || q, 'succeeded', 1 from generate_series(1, 60) as m, generate_series(1, 500) as q`)
	b.exec("vacuum analyze pawl.job")
	b.exec("vacuum analyze pawl.rollup")
	for address, most := range map[string]int64{
		"":                         61_000,
		"queues":                   31_000,
		"queue?name=q1":            61_000,
		"dead-letters":             1_100,
		"dead-letters?queue=q1":    3_300,
		"dead-letters?after=50000": 100,
		"jobs?status=dead_letter":  100,
		"all/retry?queue=q1":       68_000,
	} {
		var read int64
		for range 5 { // get may read a page twice
			before := b.read()
			if a := b.get(address); a.status != http.StatusOK {
				t.Fatalf("%s: %d\n%s", address, a.status, a.body)
			}
			if read = b.read() - before; read <= most {
				break
			}
		}
		t.Logf("%-28s %d rows and entries", address, read)
		if read > most {
			t.Errorf("%s reads %d rows and entries, at most %d are wanted", address, read, most)
		}
	}
}

// read returns how many rows and index entries of Pawl's tables the pool's sessions have read.
func (b *bed) read() (n int64) {
	b.Helper()
	for _, c := range b.pool.AcquireAllIdle(b.Context()) {
		_, err := c.Exec(b.Context(), "select pg_stat_force_next_flush()")
		c.Release()
		if err != nil {
			b.Fatal(err)
		}
	}
	return one[int64](b, `select ((select sum(seq_tup_read) from pg_stat_user_tables where schemaname = 'pawl')
      + (select sum(idx_tup_read) from pg_stat_user_indexes where schemaname = 'pawl'))::bigint`)
}
