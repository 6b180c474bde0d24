package dashboard

import (
	"context"
	"strings"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

// steps lists calls of other systems.
func steps(v *view) error {
	s := ops.Steps{Scope: v.param("scope"), Key: v.param("key"), Provider: v.param("provider"), After: v.param("after")}
	if status := v.param("status"); status != "" {
		s.Statuses = []ops.Status{ops.Status(status)}
	}
	v.add(filter{Address: v.Link.To("steps"), Fields: []field{{Name: "scope", Label: "owner's scope", Value: s.Scope, Help: "job/QUEUE"}, {Name: "key", Label: "owner's key", Value: s.Key},
		{Name: "provider", Label: "provider", Value: s.Provider}, statusField(v.param("status"), ops.StepStatuses())}})
	found, err := see(v, s.List)
	if err != nil {
		return err
	}
	next := ""
	if found.Next != "" {
		next = v.Link.To("steps", "scope", s.Scope, "key", s.Key, "provider", s.Provider, "status", v.param("status"), "after", found.Next)
	}
	v.add(v.stepTable(found.Rows, next))
	return nil
}

func (v *view) stepTable(all []ops.Step, next string) table {
	t := table{Caption: "Steps: calls of other systems", Empty: "No step fits.", Next: next, Head: []string{"step", "owner", "provider", "status", "#calls", "#in doubt", "changed", "provider's key"}}
	for _, s := range all {
		v.ReadAt = s.ReadAt
		t.Rows = append(t.Rows, []cell{linked(s.Step, v.Link.Step(s.Scope, s.Key, s.Step)), mono(s.Scope + " " + s.Key), plain(s.Provider), status(s.Status), figure(s.Calls),
			alarming(s.InDoubt, "odd"), plain(ago(s.UpdatedAt, s.ReadAt)), mono(s.ProviderKey)})
	}
	return t
}

// step shows one call of another system with all its tries.
func step(v *view) error {
	ref := ops.StepRef{Scope: v.param("scope"), Key: v.param("key"), Step: v.param("step")}
	v.Title = "Step " + ref.Step
	s, err := see(v, func(ctx context.Context, db pawl.DB) (ops.Step, error) { return ref.Get(ctx, db) })
	if err != nil {
		return err
	}
	v.ReadAt = s.ReadAt
	if s.Status == ops.StatusUnknown {
		v.add(note{Class: "notice", Text: "The call was sent, and no answer was recorded. It is not repeated, because that may take effect a second time.",
			Hint: "ask the provider about the key " + s.ProviderKey + ", then say what it answered"})
	}
	owner := mono(s.Scope + " " + s.Key)
	if s.JobID != 0 {
		owner.Link = v.Link.Job(s.JobID)
	}
	v.add(facts{{"status", status(s.Status)}, {"owner", owner}, {"provider", plain(s.Provider)}, {"provider's key", mono(s.ProviderKey)}, {"provider's reference", mono(s.Reference)},
		{"recovery", plain(s.Recovery)}, {"calls", figure(s.Calls)}, {"calls in doubt", alarming(s.InDoubt, "odd")}, {"fence of the newest call", plain(s.Fence)},
		{"first call", at(s.FirstCalledAt)}, {"nothing was sent after", at(s.LastNotAfter)}, {"the provider remembers the key until", at(s.MemoryEndsAt)},
		{"failure", plain(strings.TrimSpace(s.FailureCode + " " + s.FailureMessage))}})
	v.add(v.actions(operator.Step(s)))
	t := table{Caption: "The newest 100 calls and probes, oldest first", Empty: "No call was recorded.", Head: []string{"started", "what", "#fence", "outcome", "ended", "reference", "detail"}}
	for _, c := range s.History {
		outcome := plain(c.Outcome)
		if c.Outcome == "" {
			outcome = cell{Text: "no answer was recorded", Class: "odd"}
		}
		detail := ""
		for _, m := range details(c.Detail) {
			detail += m.Name + "=" + m.Value + " "
		}
		t.Rows = append(t.Rows, []cell{at(c.StartedAt), yes(c.Probe, "probe", "call"), plain(c.Fence), outcome, at(c.EndedAt), mono(c.Reference), plain(short(300, detail))})
	}
	v.add(heading("Calls"), t)
	v.add(heading("By hand"), v.changeTable(s.Changes, "No changes by hand."))
	return nil
}
