package dashboard

import (
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

func lanes(v *view) error {
	s := ops.Lanes{Queue: v.param("queue"), Blocked: v.param("blocked") == "yes", After: v.param("after")}
	v.filter("lanes", field{Name: "queue", Label: "queue"}, only("blocked", "only blocked"))
	t := table{Caption: "Lanes: jobs of a lane run one at a time, in order", Empty: noLanes,
		Head: []string{"lane", "queue", "policy", "#head", "its status", "#waiting behind it", "oldest of those"}}
	return list(v, t, s.List, func(l ops.Lane) []cell {
		v.ReadAt = l.ReadAt
		return []cell{linked(l.Name, v.Link.Lane(l.Queue, l.Name)), linked(l.Queue, v.Link.Queue(l.Queue)), plain(l.Policy), v.jobCell(l.Head), status(l.HeadStatus),
			figure(l.Waiting), plain(ago(l.Oldest, l.ReadAt))}
	})
}

func lane(v *view) error {
	ref := ops.LaneRef{Queue: v.param("queue"), Name: v.param("name")}
	v.Title = "Lane " + ref.Name
	l, err := see(v, ref.Get)
	if err != nil {
		return err
	}
	v.ReadAt = l.ReadAt
	if l.Blocked() {
		v.add(note{Class: "notice", Text: "The job that has the turn waits for a decision. The jobs behind it wait for that job.",
			Hint: "retry the job to keep the order, or let the lane go on without it"})
	}
	v.add(facts{{"queue", linked(l.Queue, v.Link.Queue(l.Queue))}, {"policy", plain(l.Policy)}, {"job that has the turn", v.jobCell(l.Head)}, {"its status", status(l.HeadStatus)},
		{"waiting behind it", figure(l.Waiting)}, {"oldest of those", at(l.Oldest)}})
	v.add(v.actions(operator.Lane(l)))
	v.byHand(l.Changes)
	return nil
}
