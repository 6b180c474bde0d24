package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/pawltest"
)

// withOutbox has event 1 of order/17, a dead letter that blocks event 2; event 3 of order/18; and
// event 4 without an aggregate, for another sink.
func withOutbox(t *testing.T) string {
	t.Helper()
	db := pawltest.URL(t)
	exec1(t, db, `
select pawl_v1.outbox_append('default', 'Placed', 'order', '17', '', '{"scope": "orders", "key": "17"}');
select pawl_v1.outbox_append('default', 'Paid', 'order', '17', '');
select pawl_v1.job_claim('outbox/default', null), pawl_v1.job_fail(1, 1, '{"error": "no such topic"}', '{"final": true}');
select pawl_v1.outbox_append('default', 'Placed', 'order', '18', '');
select pawl_v1.outbox_append('other', 'Beat', null, null, '');
update pawl.job set created_at = clock_timestamp() - interval '3 hours 5 minutes' where id < 3;
update pawl.job set created_at = clock_timestamp() - interval '2 minutes 10 seconds' where id >= 3`)
	return db
}

// The lag, the heads and each event are printed as text. Then the lane is unblocked.
func TestOutbox_Tables(t *testing.T) {
	t.Parallel()
	db := withOutbox(t)
	for args, golden := range map[string]string{
		"list": `JOB  SINK     TYPE    AGGREGATE  STATUS       ATTEMPTS  AGE  ERROR
1    default  Placed  order/17   dead_letter  1         3h   no such topic
2    default  Paid    order/17   waiting      0         3h   -
3    default  Placed  order/18   pending      0         2m   -
4    other    Beat    -          pending      0         2m   -
`,
		"lag": `SINK     TYPE    PENDING  DEAD  BEHIND
default  Paid    1        0     3h
default  Placed  1        1     2m
other    Beat    1        0     2m
`,
		"heads": `JOB  SINK     TYPE    AGGREGATE  STATUS       ATTEMPTS  AGE  WAITING  POLICY  LANE
1    default  Placed  order/17   dead_letter  1         3h   1        block   5:order2:17
3    default  Placed  order/18   pending      0         2m   0        block   5:order2:18
`,
	} {
		if r := mustPawl(t, db, "outbox", args); r.stdout != golden || r.stderr != "" {
			t.Errorf("pawl outbox %s:\n%s%s", args, r.stdout, r.stderr)
		}
	}
	if r := mustPawl(t, db, "outbox", "list", "--limit", "1"); r.stderr != "there is more: add --after 1\n" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if r := mustPawl(t, db, "outbox", "list", "--limit", "1", "--sink", "default", "--type", "Placed", "--after", "1"); strings.Count(r.stdout, "\n") != 2 ||
		!strings.Contains(r.stdout, "order/18") || r.stderr != "" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	mustPawl(t, db, "lanes", "unblock", "outbox/default", "5:order2:17", "--job", "1", "--reason", "told them by hand", "--yes")
	if r := mustPawl(t, db, "outbox", "heads", "--status", "dead_letter"); r.stdout != "" || r.stderr != "no aggregate waits\n" {
		t.Errorf("%+v", r)
	}
	if r := mustPawl(t, db, "outbox", "list", "--sink", "nobody"); r.stdout != "" || r.stderr != "no events\n" {
		t.Errorf("%+v", r)
	}
	if r := mustPawl(t, db, "outbox", "lag", "--sink", "nobody"); r.stdout != "" || r.stderr != "nothing is behind\n" {
		t.Errorf("%+v", r)
	}
	wantFailure(t, pawl(t, db, "outbox", "list", "--limit", "0"), 2, "--limit must lie between 1 and 1000", "outbox list --help")
	wantFailure(t, pawl(t, db, "outbox", "heads", "--status", "lost"), 2, "lost")
}

// Scripts read these documents.
func TestOutbox_JSON(t *testing.T) {
	t.Parallel()
	db := withOutbox(t)
	type event struct {
		JobID         int64 `json:"job_id"`
		Sink, Status  string
		EventID       string  `json:"event_id"`
		EventType     string  `json:"event_type"`
		AggregateType *string `json:"aggregate_type"`
		AggregateID   *string `json:"aggregate_id"`
		Attempts      int
		LastError     *string   `json:"last_error"`
		CreatedAt     time.Time `json:"created_at"`
		Lane, Policy  string
		Waiting       int
		Pending, Dead int
		Oldest        *string
		BehindMS      int64     `json:"behind_ms"`
		ReadAt        time.Time `json:"read_at"`
	}
	type document struct {
		Events, Heads, Lags []event
		NextAfter           *string `json:"next_after"`
	}
	d := decode[document](t, mustPawl(t, db, "outbox", "list", "--json").stdout)
	if e := d.Events; len(e) != 4 || e[0].EventID != "6:orders2:176:Placed" || e[0].Attempts != 1 || *e[0].LastError != "no such topic" ||
		e[1].Status != "waiting" || e[3].AggregateID != nil || e[3].LastError != nil {
		t.Errorf("%+v", d.Events)
	}
	d = decode[document](t, mustPawl(t, db, "outbox", "heads", "--json").stdout)
	if h := d.Heads; len(h) != 2 || h[0].JobID != 1 || h[0].Waiting != 1 || h[0].Lane != "5:order2:17" || h[0].EventID != "6:orders2:176:Placed" {
		t.Errorf("%+v", d.Heads)
	}
	d = decode[document](t, mustPawl(t, db, "outbox", "lag", "--json").stdout)
	if l := d.Lags; len(l) != 3 || l[0].BehindMS < 3*3600*1000 || l[0].Oldest == nil {
		t.Errorf("%+v", d.Lags)
	}
}
