package dashboard

import (
	"time"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

func schedules(v *view) error {
	t := table{Caption: "Schedules", Empty: noSchedules, Head: []string{"schedule", "plan", "queue", "kind", "state", "next", "last"}}
	return list(v, t, ops.Schedules{After: v.param("after")}.List, func(s ops.Schedule) []cell {
		v.ReadAt = s.ReadAt
		return []cell{linked(s.Name, v.Link.Schedule(s.Name)), plain(operator.Plan(s)), linked(s.Queue, v.Link.Queue(s.Queue)), plain(s.Kind), scheduleState(s), at(s.NextAt), at(s.LastAt)}
	})
}

func scheduleState(s ops.Schedule) cell {
	switch {
	case s.Paused:
		return cell{Text: "paused", Class: "odd"}
	case s.Overdue() > 2*time.Second:
		return cell{Text: "late by " + span(s.Overdue()) + ": no keeper runs", Class: "bad"}
	}
	return cell{Text: "on", Class: "good"}
}

func schedule(v *view) error {
	ref := ops.ScheduleRef{Name: v.param("name")}
	v.Title = "Schedule " + ref.Name
	s, err := see(v, ref.Get)
	if err != nil {
		return err
	}
	v.ReadAt = s.ReadAt
	v.add(facts{{"plan", plain(operator.Plan(s))}, {"state", scheduleState(s)}, {"next", at(s.NextAt)}, {"last", at(s.LastAt)}, {"after an outage", yes(s.Missed == "all", "each missed tick is enqueued", "one tick is enqueued")},
		{"queue", linked(s.Queue, v.Link.Queue(s.Queue))}, {"kind", plain(s.Kind)}, {"lane", plain(s.Lane)}, {"priority", plain(s.Priority)}, {"attempts", plain(s.MaxAttempts)}, {"payload", plain(octets(s.PayloadOctets))},
		{"put", at(s.CreatedAt)}})
	v.add(v.actions(operator.Schedule(s)))
	v.byHand(s.Changes)
	return nil
}
