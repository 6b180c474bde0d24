package postgres

import (
	"context"
	"testing"
	"time"
)

// A standby has its primary's commits. After Cut it gets no new ones, after Join it gets them, and
// after Promote it accepts writes.
func TestStandby_FollowsIsCutJoinsAndIsPromoted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := startServer(t, Options{RAM: true})
	query(t, s, "create table kept as select 1 as n; select 'made'")
	b, err := s.Standby(ctx, "second")
	must(t, err)
	t.Cleanup(func() { must(t, b.Stop()) })
	must(t, b.until(ctx, "select exists (select from pg_tables as t where t.tablename = 'kept')"))

	must(t, s.exec(ctx, "alter system set synchronous_standby_names = 'second'", "select pg_reload_conf()"))
	must(t, s.until(ctx, "select exists (select from pg_stat_replication as r where r.sync_state = 'sync')"))
	query(t, s, "insert into kept values (2); select 'replicated'")
	must(t, b.until(ctx, "select count(*) = 2 from kept"))

	must(t, b.Cut(ctx))
	waiting := make(chan error, 1)
	go func() { waiting <- s.exec(ctx, "insert into kept values (3)") }()
	must(t, s.until(ctx, "select exists (select from pg_stat_activity as a where a.wait_event = 'SyncRep')"))
	if got := query(t, b, "select count(*)::text from kept"); got != "2" {
		t.Errorf("a standby that was cut off has %s rows", got)
	}
	must(t, b.Join(ctx))
	must(t, <-waiting)
	must(t, b.until(ctx, "select count(*) = 3 from kept"))

	must(t, b.Cut(ctx))
	must(t, b.Promote(ctx))
	must(t, b.until(ctx, "select not pg_is_in_recovery()"))
	query(t, b, "insert into kept values (4); select 'a primary'")
}
