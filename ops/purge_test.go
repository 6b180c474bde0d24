package ops_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

var hourly = ops.By{Actor: "cron", Reason: "hourly"}

// Each table is purged of expired rows only, in batches. The dry run counts the same rows.
func TestPurge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`
insert into pawl.command (scope, key, hash, status, created_at, expires_at)
select 's', n::text, sha256(''), case when n % 2 = 0 then 'succeeded' else 'failed_retryable' end, now() - interval '3 days', now() - interval '2 days' from generate_series(1, 4600) as n;
insert into pawl.job_key (queue, key, hash, job_id, created_at, expires_at)
select 'q', n::text, sha256(''), 0, now() - interval '3 days', now() - interval '2 days' from generate_series(1, 10) as n;
insert into pawl.step (scope, key, step, hash, recovery, provider_key, status, created_at, expires_at)
select 'job/q', n::text, 's', sha256(''), 'keyed', 'p', 'succeeded', now() - interval '3 days', now() - interval '2 days' from generate_series(1, 5) as n;
insert into pawl.inbox (consumer, key, hash, received_at, processed_at) select 'c', n::text, sha256(''), now() - interval '3 days', now() from generate_series(1, 7) as n;
insert into pawl.delivery (consumer, key, payload, received_at) select 'c', n::text, '', now() - interval '3 days' from generate_series(1, 8) as n;
insert into pawl.replay (scope, replays, updated_at) values ('gone', 1, now() - interval '3 days'), ('s', 1, now() - interval '3 days');
insert into pawl.fence (resource, fence, seen_at) values ('r', 1, now() - interval '3 days'), ('new', 1, now())`)
	for _, c := range []struct {
		rule ops.PurgeRule
		want int
	}{
		{ops.PurgeRule{Table: ops.TableCommand}, 2300},
		{ops.PurgeRule{Table: ops.TableJobKey}, 10},
		{ops.PurgeRule{Table: ops.TableStep}, 5},
		{ops.PurgeRule{Table: ops.TableInbox, Consumer: "c", OlderThan: 24 * time.Hour, Unreported: true}, 7},
		{ops.PurgeRule{Table: ops.TableDelivery, Consumer: "c", OlderThan: 24 * time.Hour}, 8},
		{ops.PurgeRule{Table: ops.TableReplay, OlderThan: 24 * time.Hour}, 1},
		{ops.PurgeRule{Table: ops.TableFence, OlderThan: 24 * time.Hour}, 1},
	} {
		counted, err := ops.Purge(t.Context(), b.pool, c.rule, ops.DryRun, nil)
		b.must(err)
		told := 0
		purged, err := ops.Purge(t.Context(), b.pool, c.rule, hourly, func(t ops.Tally) { told = t.Done })
		if err != nil || purged != (ops.Tally{Done: c.want}) || counted != (ops.Tally{DryRun: true, Matched: c.want}) || told > c.want || c.want > 1000 && told == 0 {
			t.Errorf("%+v: counted %+v, purged %+v, want %d, told %d, %v", c.rule, counted, purged, c.want, told, err)
		}
	}
	b.wantCount("select count(*) from pawl.command", 2300)
	for _, bad := range []ops.PurgeRule{{}, {Table: "gate"}, {Table: ops.TableInbox, OlderThan: 1}, {Table: ops.TableInbox, Consumer: "c"},
		{Table: ops.TableFence}, {Table: ops.TableCommand, Consumer: "c"}, {Table: ops.TableCommand, OlderThan: -1}} {
		_, err := ops.Purge(t.Context(), nil, bad, hourly, nil)
		_, err2 := ops.Purge(t.Context(), nil, bad, ops.DryRun, nil)
		if !errors.Is(err, pawl.ErrArgumentInvalid) || !errors.Is(err2, pawl.ErrArgumentInvalid) {
			t.Errorf("%+v: %v, %v", bad, err, err2)
		}
	}
}

// If a consumer never reported how long it must remember, a purge keeps deliveries that its source
// may send again.
func TestPurge_OfAConsumerThatNeverReportedStopsAtFourteenDays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("insert into pawl.inbox (consumer, key, hash, received_at, processed_at) select 'c', n::text, sha256(''), now() - n * interval '10 days', now() from generate_series(1, 2) as n")
	purge := func(age time.Duration, unreported bool) (int, error) {
		tally, err := ops.Purge(t.Context(), b.pool, ops.PurgeRule{Table: ops.TableInbox, Consumer: "c", OlderThan: age, Unreported: unreported}, hourly, nil)
		return tally.Done, err
	}
	if n, err := purge(24*time.Hour, false); n != 0 || !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "consumer_report") {
		t.Errorf("forgot %d, %v", n, err)
	}
	if _, err := ops.Purge(t.Context(), b.pool, ops.PurgeRule{Table: ops.TableInbox, Consumer: "c", OlderThan: 24 * time.Hour}, ops.DryRun, nil); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("counted: %v", err)
	}
	if n, err := purge(14*24*time.Hour, false); n != 1 || err != nil {
		t.Errorf("forgot %d, %v, want the one of 20 days", n, err)
	}
	if n, err := purge(24*time.Hour, true); n != 1 || err != nil {
		t.Errorf("forgot %d, %v, want the other", n, err)
	}
}

// A purge writes one audit record with its count, even if it is stopped early. If it could not be
// recorded, it deletes nothing.
func TestPurge_LeavesOneRecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`
insert into pawl.command (scope, key, hash, status, created_at, expires_at)
select 's', n::text, sha256(''), 'succeeded', now() - interval '3 days', now() - interval '2 days' from generate_series(1, 3000) as n;
insert into pawl.delivery (consumer, key, payload, received_at) select 'c', n::text, '', now() - interval '3 days' from generate_series(1, 8) as n`)
	for _, by := range []ops.By{{Actor: "ann"}, {Reason: "r"}, {Actor: strings.Repeat("a", 256), Reason: "r"}} {
		if n, err := ops.Purge(t.Context(), b.pool, ops.PurgeRule{Table: ops.TableCommand}, by, nil); n.Done != 0 || !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%+v: purged %+v, %v", by, n, err)
		}
	}
	b.wantCount("select count(*) from pawl.command", 3000)
	b.wantCount("select count(*) from pawl.audit", 0)

	conn, err := b.pool.Acquire(t.Context())
	b.must(err)
	defer conn.Release()
	ctx, stop := context.WithCancel(t.Context())
	tally, err := ops.Purge(ctx, conn.Conn(), ops.PurgeRule{Table: ops.TableCommand}, ops.By{Actor: "ann", Reason: "early"}, func(ops.Tally) { stop() })
	n := tally.Done
	if !errors.Is(err, context.Canceled) || n == 0 || n == 3000 {
		t.Fatalf("purged %d, %v", n, err)
	}
	b.wantCount("select count(*) from pawl.command", 3000-n)
	b.wantCount("select (a.before ->> 'rows')::int from pawl.audit as a where a.actor = 'ann' and a.reason = 'early' and a.verb = 'purge' and a.target = 'table command' and a.after is null", n)

	_, err = ops.Purge(t.Context(), conn.Conn(), ops.PurgeRule{Table: ops.TableDelivery, Consumer: "c", OlderThan: 48 * time.Hour}, hourly, nil)
	b.must(err)
	b.wantCount(`select (a.before ->> 'rows')::int from pawl.audit as a
 where a.target = 'table delivery c' and a.actor = 'cron' and a.before @> '{"table": "delivery", "consumer": "c", "older_than_ms": 172800000}'
   and a.at - (a.before ->> 'cut_off')::timestamptz between interval '48 hours' - interval '1 minute' and interval '48 hours' + interval '1 minute'`, 8)
	b.wantCount("select count(*) from pawl.audit", 2)
}
