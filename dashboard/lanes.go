package dashboard

import (
	"context"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

// lanes lists lanes in the order of their ids.
func lanes(v *view) error {
	s := ops.Lanes{Queue: v.param("queue"), Blocked: v.param("blocked") == "yes", After: v.param("after")}
	v.add(filter{Address: v.Link.To("lanes"), Fields: []field{
		{Name: "queue", Label: "queue", Value: s.Queue}, {Name: "blocked", Label: "only blocked", Value: v.param("blocked"), Options: []string{"yes"}}}})
	found, err := see(v, s.List)
	if err != nil {
		return err
	}
	t := table{Caption: "Lanes: jobs of a lane run one at a time, in order", Empty: "No lane fits.",
		Head: []string{"lane", "queue", "policy", "#head", "its status", "#waiting behind it", "oldest of those"}}
	for _, l := range found.Rows {
		v.ReadAt = l.ReadAt
		head := cell{}
		if l.Head != 0 {
			head = linked(l.Head, v.Link.Job(l.Head))
		}
		t.Rows = append(t.Rows, []cell{linked(l.Name, v.Link.Lane(l.Queue, l.Name)), linked(l.Queue, v.Link.Queue(l.Queue)), plain(l.Policy), head, status(l.HeadStatus),
			figure(l.Waiting), plain(ago(l.Oldest, l.ReadAt))})
	}
	if found.Next != "" {
		t.Next = v.Link.To("lanes", "queue", s.Queue, "blocked", v.param("blocked"), "after", found.Next)
	}
	v.add(t)
	return nil
}

// lane shows one lane.
func lane(v *view) error {
	ref := ops.LaneRef{Queue: v.param("queue"), Name: v.param("name")}
	v.Title = "Lane " + ref.Name
	l, err := see(v, func(ctx context.Context, db pawl.DB) (ops.Lane, error) { return ref.Get(ctx, db) })
	if err != nil {
		return err
	}
	v.ReadAt = l.ReadAt
	if l.Blocked() {
		v.add(note{Class: "notice", Text: "The job that has the turn waits for a decision. The jobs behind it wait for that job.",
			Hint: "retry the job to keep the order, or let the lane go on without it"})
	}
	head := cell{}
	if l.Head != 0 {
		head = linked(l.Head, v.Link.Job(l.Head))
	}
	v.add(facts{{"queue", linked(l.Queue, v.Link.Queue(l.Queue))}, {"policy", plain(l.Policy)}, {"job that has the turn", head}, {"its status", status(l.HeadStatus)},
		{"waiting behind it", figure(l.Waiting)}, {"oldest of those", at(l.Oldest)}})
	v.add(v.actions(operator.Lane(l)))
	v.add(heading("By hand"), v.changeTable(l.Changes, "No changes by hand."))
	return nil
}
