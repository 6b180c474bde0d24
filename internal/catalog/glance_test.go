package catalog_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/ops"
)

// While the counts are small, Glance returns the same as ops.Look.
func TestGlance_IsALookWhileCountsAreSmall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("select pawl_v1.worker_register('w')")
	b.exec(`insert into pawl.lane (queue, name) select 'q' || g % 3, 'l' || g from generate_series(1, 9) as g`)
	b.exec(`insert into pawl.job (queue, kind, payload, status, claimed_by, priority, attempts, available_at)
select 'q' || g % 5, 'k', 'x', s.status, case s.status when 'processing' then 1 end, 1 + g % 4, g % 2,
       clock_timestamp() + case g % 3 when 0 then interval '1 hour' else interval '-1 hour' end
  from generate_series(0, 199) as g
 cross join lateral (select (array['pending', 'dead_letter', 'cancelled', 'unknown', 'processing'])[1 + g % 7 % 5]) as s (status)`)
	b.exec(`insert into pawl.job (queue, kind, payload, status, lane_id, position, lane_head)
select l.queue, 'k', 'x', case when g = 0 then 'dead_letter' else 'waiting' end, l.id, 100 * l.id + g, g = 0
  from pawl.lane as l cross join generate_series(0, 4) as g`)
	b.exec(`insert into pawl.queue (name, mode) values ('only set', 'paused'), ('q1', 'draining')`)
	b.exec(`insert into pawl.job (queue, kind, payload, status, claimed_by) values ('only held', 'k', 'x', 'processing', 1)`)
	b.exec(`insert into pawl.step (scope, key, step, hash, expires_at, status, recovery, provider_key)
select 's', g::text, 's', sha256('x'), clock_timestamp() + interval '1 day', 'unknown', 'keyed', 'k' from generate_series(1, 3) as g`)
	b.exec(`insert into pawl.command (scope, key, hash, expires_at, lease_expires_at, status)
select 's', g::text, sha256('x'), clock_timestamp() + interval '1 day', clock_timestamp() - interval '1 hour', (array['processing', 'unknown'])[1 + g % 2] from generate_series(1, 5) as g`)
	look, err := ops.Look(t.Context(), b.pool)
	b.must(err)
	glance := b.glance()
	for _, o := range []*ops.Overview{&look, &glance} {
		o.ReadAt, o.OldestSnapshot, o.XminAge, o.Outbox, o.Workers, o.Consumers = time.Time{}, time.Time{}, 0, nil, nil, nil
		for i := range o.Queues {
			o.Queues[i].ReadAt = time.Time{}
		}
	}
	if !reflect.DeepEqual(look, glance) {
		t.Errorf("a look says\n%+v\na glance says\n%+v", look, glance)
	}
	if len(glance.Queues) != 7 || glance.UnknownSteps != 3 || glance.UnknownCommands != 3 {
		t.Errorf("a glance says %+v", glance)
	}
}

// With any number of jobs, a glance reads only as many index entries as it counts.
func TestGlance_StopsCounting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into pawl.job (queue, kind, payload, status, available_at)
select 'q' || g % 2, 'k', 'x', (array['pending', 'dead_letter', 'pending', 'cancelled'])[1 + g / 2 % 4],
       clock_timestamp() + case g / 8 % 2 when 0 then interval '1 hour' else interval '-1 hour' end
  from generate_series(0, 399999) as g`)
	b.exec(`insert into pawl.lane (queue, name) values ('q1', 'l')`)
	b.exec(`insert into pawl.job (queue, kind, payload, status, lane_id, position) select 'q1', 'k', 'x', 'waiting', l.id, g from pawl.lane as l, generate_series(1, 100000) as g`)
	b.exec("vacuum analyze pawl.job")
	for _, statistics := range []string{"of the table", "of an empty table"} {
		var o ops.Overview
		read := b.reads(func(tx pgx.Tx) { o = b.glanceIn(tx) })
		if len(o.Queues) != 2 {
			t.Fatalf("%d queues", len(o.Queues))
		}
		for _, q := range o.Queues {
			if q.Due != catalog.GlanceLimit+1 || q.Later != catalog.GlanceLimit+1 || q.Dead+q.Cancelled != catalog.GlanceLimit+1 {
				t.Errorf("statistics %s: queue %s: %+v", statistics, q.Name, q)
			}
		}
		if w := o.Queues[1].Waiting; w != catalog.GlanceLimit+1 {
			t.Errorf("statistics %s: %d wait", statistics, w)
		}
		if read > 8*catalog.GlanceLimit {
			t.Errorf("statistics %s: it reads %d entries", statistics, read)
		}
		b.exec("delete from pg_statistic where starelid = 'pawl.job'::regclass")
		b.exec("update pg_class set reltuples = 0, relpages = 0 where oid = 'pawl.job'::regclass")
	}
}

// glance returns the part of an overview that a glance reads.
func (b *bed) glance() ops.Overview { return b.glanceIn(b.pool) }

func (b *bed) glanceIn(db catalog.DB) ops.Overview {
	b.Helper()
	standing, err := catalog.GlanceStanding[ops.Overview](b.Context(), db)
	b.must(err)
	standing[0].Queues, err = catalog.Glance[ops.Queue](b.Context(), db)
	b.must(err)
	return standing[0]
}

// Audit reads from the newest row on, page by page, by actor and by verb.
func TestAudit_NewestFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into pawl.audit (actor, verb, target, reason, before)
select 'a' || g % 2, case when g > 9 then 'job_retry' else 'job_cancel' end, 'job ' || g, 'r', '{}' from generate_series(1, 14) as g`)
	type record struct {
		ID     int64  `json:"id"`
		Target string `json:"target"`
	}
	list := func(q catalog.AuditQuery) (ids []int64) {
		t.Helper()
		rows, err := catalog.Audit[record](t.Context(), b.pool, q)
		b.must(err)
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		return ids
	}
	for name, c := range map[string]struct {
		query catalog.AuditQuery
		want  []int64
	}{
		"the newest":          {catalog.AuditQuery{Page: catalog.Page{Limit: 3}}, []int64{14, 13, 12}},
		"a page on":           {catalog.AuditQuery{Page: catalog.Page{Limit: 3, After: []string{"12"}}}, []int64{11, 10, 9}},
		"of one":              {catalog.AuditQuery{Actor: "a0", Page: catalog.Page{Limit: 2}}, []int64{14, 12}},
		"of a verb":           {catalog.AuditQuery{Actor: "a1", Verb: "job_cancel", Page: catalog.Page{Limit: 9}}, []int64{9, 7, 5, 3, 1}},
		"of an unknown actor": {catalog.AuditQuery{Actor: "' or true --", Page: catalog.Page{Limit: 9}}, nil},
	} {
		if got := list(c.query); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
