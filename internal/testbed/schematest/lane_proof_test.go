//go:build proof

package schematest_test

import (
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

// A hundred thousand jobs that wait in lanes do not slow a claim (trap T67). It reads as many pages
// with them as without.
func TestT67_BlockedLanesCostAClaimNothing(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	conn := connect(t, url)
	const due = "truncate pawl.job; insert into pawl.job (queue, kind, payload) select 'q', 'k', '' from generate_series(1, 20000);"
	// As many rows in another queue, so that the primary key has the same depth.
	exec1(t, url, due+"insert into pawl.job (queue, kind, payload) select 'other', 'k', '' from generate_series(1, 101000)")
	without := pagesOf(t, conn, "pawl_v1.job_claim('q', null, 100)")
	exec1(t, url, due+`
insert into pawl.lane (queue, name) select 'q', n from generate_series(1, 1000) as n;
insert into pawl.job (queue, kind, payload, status, lane_id, position, lane_head, available_at)
select 'q', 'k', '', case when n <= 1000 then 'dead_letter' else 'waiting' end, 1 + (n - 1) % 1000, n, n <= 1000, '2000-01-01'
  from generate_series(1, 101000) as n`)
	with := pagesOf(t, conn, "pawl_v1.job_claim('q', null, 100)")
	t.Logf("pages of a claim of 100 jobs: %d without, %d with 100,000 blocked", without, with)
	if with > without*11/10 {
		t.Errorf("a claim reads %d pages while 100,000 jobs are blocked, and %d without them", with, without)
	}
}
