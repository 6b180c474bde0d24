package ops_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/schedule"
)

type scheduleVerb = func(r ops.ScheduleRef, ctx context.Context, db pawl.DB, by ops.By) (ops.Result, error)

// Each verb makes its change and leaves an audit record. If nothing has to change, or the schedule
// is absent, the outcome says so.
func TestSchedules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := schedule.Put(t.Context(), b.pool, schedule.Schedule{Name: "s", Plan: schedule.Every(time.Hour), Queue: "q", Kind: "k", Lane: "l", Priority: 1,
		Missed: schedule.MissedAll, Payload: []byte("payload"), FirstAt: time.Now().Add(-time.Minute)})
	b.must(err)
	b.exec(`select pawl_v1.schedule_put('c', 'q', 'k', '', '{"cron": "30 2 * * *", "time_zone": "Europe/Berlin"}')`)
	list := func(f ops.Schedules) []ops.Schedule {
		t.Helper()
		page, err := f.List(t.Context(), b.pool)
		b.must(err)
		return page.Rows
	}
	all := list(ops.Schedules{})
	if len(all) != 2 || all[0].Name != "c" || all[0].Cron != "30 2 * * *" || all[0].TimeZone != "Europe/Berlin" || !all[0].NextAt.IsZero() || all[0].Every != 0 || all[0].Overdue() != 0 {
		t.Errorf("%+v", all)
	}
	if s := all[1]; s.Every != time.Hour || s.Cron != "" || s.Missed != "all" || s.Paused || s.Queue != "q" || s.Kind != "k" || s.Priority != 1 || s.MaxAttempts != 25 ||
		s.Lane != "l" || s.PayloadOctets != 7 || !s.LastAt.IsZero() || s.Overdue() < 50*time.Second || s.Overdue() > 10*time.Minute {
		t.Errorf("%+v", s)
	}
	if page := list(ops.Schedules{After: "c", Limit: 1}); len(page) != 1 || page[0].Name != "s" {
		t.Errorf("%+v", page)
	}
	for _, step := range []struct {
		verb scheduleVerb
		want ops.Outcome
	}{
		{ops.ScheduleRef.Resume, ops.Unchanged}, {ops.ScheduleRef.Pause, ops.Paused}, {ops.ScheduleRef.Pause, ops.Unchanged},
		{ops.ScheduleRef.RunNow, ops.Enqueued}, {ops.ScheduleRef.Resume, ops.Resumed}, {ops.ScheduleRef.Delete, ops.Deleted},
		{ops.ScheduleRef.Delete, ops.Absent}, {ops.ScheduleRef.Pause, ops.Absent}, {ops.ScheduleRef.Resume, ops.Absent}, {ops.ScheduleRef.RunNow, ops.Absent},
	} {
		r, err := step.verb(ops.ScheduleRef{Name: "s"}, t.Context(), b.pool, by)
		if err != nil || r.Outcome != step.want || r.Changed() != (step.want != ops.Unchanged && step.want != ops.Absent) || (r.JobID != 0) != (step.want == ops.Enqueued) {
			t.Errorf("%+v, %v, want %s", r, err, step.want)
		}
	}
	b.wantCount("select count(*) from pawl.audit where target = 'schedule s' and actor = 'ann'", 4)
	b.wantCount("select count(*) from pawl.job as j join pawl.lane as l on l.id = j.lane_id where l.name = 'l'", 1)
	for name, verb := range map[string]scheduleVerb{"pause": ops.ScheduleRef.Pause, "resume": ops.ScheduleRef.Resume, "run now": ops.ScheduleRef.RunNow, "delete": ops.ScheduleRef.Delete} {
		for _, bad := range []ops.By{{Actor: "ann"}, {Reason: "r"}} {
			if _, err := verb(ops.ScheduleRef{Name: "c"}, t.Context(), b.pool, bad); !errors.Is(err, pawl.ErrArgumentInvalid) {
				t.Errorf("%s, %+v: %v", name, bad, err)
			}
		}
	}
	tx := b.begin()
	if r, err := (ops.ScheduleRef{Name: "c"}).Delete(t.Context(), tx, by); err != nil || !r.Changed() {
		t.Errorf("%+v, %v", r, err)
	}
	b.must(tx.Rollback(t.Context()))
	if len(list(ops.Schedules{})) != 1 {
		t.Error("a rolled back verb deleted it")
	}
	if _, err := (ops.Schedules{Limit: 1001}).List(t.Context(), b.pool); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("limit 1001: %v", err)
	}
}
