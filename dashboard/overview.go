package dashboard

import (
	"slices"
	"time"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

func overview(v *view, o ops.Overview) error {
	v.add(v.needed(o))
	v.history("", "")
	v.add(heading("Queues"), v.queueTable(o.Queues, o.ReadAt), heading("Workers"), v.workerTable(o.Workers, o.ReadAt))
	return nil
}

// needed returns what needs a person, if anything, then the load.
func (v *view) needed(o ops.Overview) needs {
	var dead, unknown, blocked, due int
	var oldest time.Time
	for _, q := range o.Queues {
		dead, unknown, blocked, due = dead+q.Dead, unknown+q.Unknown, blocked+q.LanesBlocked, due+q.Due
		if !q.DueSince.IsZero() && (oldest.IsZero() || q.DueSince.Before(oldest)) && q.Mode == ops.QueueRunning {
			oldest = q.DueSince
		}
	}
	silent := 0
	for _, w := range o.Workers {
		if w.State != "alive" {
			silent++
		}
	}
	wait := need{"–", "oldest due job", v.Link.To("queues"), ""}
	if !oldest.IsZero() {
		wait.Count = span(o.ReadAt.Sub(oldest))
		if o.ReadAt.Sub(oldest) > time.Minute {
			wait.Class = "odd"
		}
	}
	var all needs
	person := func(n int, text, link, class string) {
		if n > 0 {
			all = append(all, need{capped(n).Text, text, link, class})
		}
	}
	person(dead, "dead letters", v.Link.To("dead-letters"), "bad")
	person(o.UnknownSteps, "steps of unknown outcome", v.Link.To("steps", "status", ops.StatusUnknown), "bad")
	person(o.UnknownCommands, "commands of unknown outcome", v.Link.To("commands", "status", ops.StatusUnknown), "bad")
	person(unknown, "jobs that wait for a step", v.Link.To("jobs", "status", ops.StatusUnknown), "odd")
	person(blocked, "lanes blocked", v.Link.To("lanes", "blocked", "yes"), "odd")
	person(silent, "workers silent", v.Link.To("workers"), "odd")
	if len(all) == 0 {
		all = needs{{"0", "dead, unknown, blocked or silent", v.Link.To("doctor"), "good"}}
	}
	return append(all, need{capped(due).Text, "jobs due", v.Link.To("queues"), ""}, wait,
		need{number(len(o.Workers) - silent), "workers alive", v.Link.To("workers"), ""})
}

// queues lists all queues. An outbox is the queue "outbox/SINK".
func queues(v *view, o ops.Overview) error {
	v.add(v.queueTable(o.Queues, o.ReadAt))
	return nil
}

func (v *view) queueTable(all []ops.Queue, now time.Time) table {
	t := table{Caption: "Unfinished jobs by queue, counted up to " + number(countLimit),
		Head:  []string{"queue", "mode", "#due", "#oldest due", "#later", "#waiting", "#processing", "#dead letters", "#unknown", "#lanes blocked"},
		Empty: noQueues}
	for _, q := range all {
		mode := plain(q.Mode)
		if q.Mode != ops.QueueRunning {
			mode.Class = "odd"
		}
		oldest := plain("")
		if !q.DueSince.IsZero() {
			oldest = plain(span(now.Sub(q.DueSince)))
		}
		dead := ended(q, q.Dead, "bad")
		if q.Dead > 0 {
			dead.Link = v.Link.To("dead-letters", "queue", q.Name)
		}
		t.Rows = append(t.Rows, []cell{linked(q.Name, v.Link.Queue(q.Name)), mode, capped(q.Due), oldest, capped(q.Later), capped(q.Waiting),
			capped(q.Processing), dead, ended(q, q.Unknown, "bad"), ended(q, q.LanesBlocked, "odd")})
	}
	return t
}

func queue(v *view, o ops.Overview) error {
	name := v.param("name")
	v.Title = "Queue " + name
	q := ops.Queue{Name: name, Mode: ops.QueueRunning}
	if i := slices.IndexFunc(o.Queues, func(q ops.Queue) bool { return q.Name == name }); i >= 0 {
		q = o.Queues[i]
	}
	v.add(facts{
		{"mode", plain(q.Mode)}, {"archive", yes(q.Archive, "finished jobs are kept for seven days", "finished jobs are deleted")},
		{"due", capped(q.Due)}, {"later", capped(q.Later)}, {"waiting in lanes", capped(q.Waiting)}, {"processing", capped(q.Processing)},
		{"tried before, to be tried again", capped(q.Begun)}, {"dead letters", ended(q, q.Dead, "bad")}, {"unknown", ended(q, q.Unknown, "bad")},
		{"cancelled", ended(q, q.Cancelled, "")}, {"lanes blocked", ended(q, q.LanesBlocked, "odd")}, {"first due since", at(q.DueSince)},
	})
	v.add(v.actions(operator.Queue(q)))
	v.add(verbs{{Text: "Jobs", Link: v.Link.To("jobs", "queue", name)}, {Text: "Dead letters", Link: v.Link.To("dead-letters", "queue", name)},
		{Text: "Lanes", Link: v.Link.To("lanes", "queue", name)}})
	v.history("queue", name)
	return nil
}

func workers(v *view, o ops.Overview) error {
	v.add(v.workerTable(o.Workers, o.ReadAt))
	return nil
}

func (v *view) workerTable(all []ops.Worker, now time.Time) table {
	t := table{Caption: "A worker without a presence lock counts as dead only when its lease ends", Head: []string{"worker", "#id", "state", "#last heartbeat", "#lease left", "presence lock", "#jobs in hand"},
		Empty: noWorkers}
	for _, w := range all {
		state := cell{Text: w.State, Class: "good"}
		if w.State != "alive" {
			state.Class = "bad"
		}
		left := w.LeaseExpiresAt.Sub(now)
		lease := cell{Text: span(left)}
		if left <= 0 {
			lease = cell{Text: "over for " + span(-left), Class: "bad"}
		}
		t.Rows = append(t.Rows, []cell{{Text: w.Name, Mono: true}, plain(w.ID), state, plain(ago(w.SeenAt, now)), lease,
			yes(w.Presence, "held", "none"), figure(w.Held)})
	}
	return t
}
