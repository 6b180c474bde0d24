package catalog_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/catalog"
)

func (b *bed) open(limit int) int { return b.openIn(b.pool, limit) }

func (b *bed) openIn(db catalog.DB, limit int) int {
	b.Helper()
	n, err := catalog.OpenDeliveries(b.Context(), db, "c", "inbox/c", limit)
	b.must(err)
	return n
}

// OpenDeliveries counts one consumer's stored deliveries that are pending, processing or waiting in
// their lanes, without those held at a gate.
func TestOpenDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if n := b.open(10); n != 0 {
		t.Errorf("%d in an empty database", n)
	}
	b.exec("select pawl_v1.worker_register('w')")
	b.exec(`insert into pawl.job (queue, kind, payload, status, claimed_by, priority, available_at)
select q.name, 'k', '', s.status, case s.status when 'processing' then 1 end, 1 + g % 4, now() + (g - 2) * interval '1 hour'
  from (values ('inbox/c'), ('inbox/other'), ('c')) as q (name)
 cross join (values ('pending', 5), ('processing', 2), ('dead_letter', 7), ('cancelled', 3), ('unknown', 2)) as s (status, n)
 cross join lateral generate_series(1, s.n) as g`)
	b.exec("insert into pawl.lane (queue, name) values ('inbox/c', 'a'), ('inbox/c', 'b'), ('inbox/other', 'a')")
	b.exec(`insert into pawl.job (queue, kind, payload, status, lane_id, position, lane_head)
select l.queue, 'k', '', case when g = 0 then 'dead_letter' else 'waiting' end, l.id, 100 * l.id + g, g = 0 from pawl.lane as l cross join generate_series(0, 3) as g`)
	if n := b.open(100); n != 5+2+6 {
		t.Errorf("%d are open, want 13", n)
	}
	if n := b.open(9); n != 9 {
		t.Errorf("%d are counted up to 9", n)
	}
	b.exec("insert into pawl.sequence_gate_held (consumer, resource, seq, job_id) select case when j.queue = 'inbox/c' then 'c' else 'other' end, 'r', j.id, j.id from pawl.job as j where j.status = 'pending' and j.available_at > now()")
	if n := b.open(100); n != 13-3 {
		t.Errorf("%d are open beside those that are held, want 10", n)
	}
}

// A count reads no more index entries of each kind than it counts, with any number of jobs and any
// statistics.
func TestOpenDeliveries_StopsCounting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("insert into pawl.lane (queue, name) values ('inbox/c', 'l')")
	b.exec(`insert into pawl.job (queue, kind, payload, status, lane_id, position)
select case when g % 4 = 0 then 'other' else 'inbox/c' end, 'k', '', s.status, case s.status when 'waiting' then 1 end, case s.status when 'waiting' then g end
  from generate_series(1, 200000) as g cross join lateral (select case when g % 8 = 1 then 'waiting' when g % 8 = 2 then 'dead_letter' else 'pending' end) as s (status)`)
	b.exec("vacuum analyze pawl.job")
	for _, statistics := range []string{"of the table", "of an empty table"} {
		read := b.reads(func(tx pgx.Tx) {
			if n := b.openIn(tx, 1000); n != 1000 {
				t.Errorf("%d are counted up to 1000", n)
			}
		})
		if read > 2*1000+100 { // those pending or processing, and those waiting
			t.Errorf("statistics %s: it reads %d entries", statistics, read)
		}
		b.exec("delete from pg_statistic where starelid = 'pawl.job'::regclass")
	}
}
