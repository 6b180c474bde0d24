package dashboard

import (
	"strings"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

func steps(v *view) error {
	s := ops.Steps{Scope: v.param("scope"), Key: v.param("key"), Provider: v.param("provider"), Statuses: v.statuses(), After: v.param("after")}
	v.filter("steps", field{Name: "scope", Label: "owner's scope", Help: "job/QUEUE, guard/TABLE"}, field{Name: "key", Label: "owner's key"}, field{Name: "provider", Label: "provider"}, statusField(ops.StepStatuses()))
	return list(v, stepTable, s.List, v.stepCells)
}

var stepTable = table{Caption: "Steps: calls of other systems", Empty: noSteps, Head: []string{"step", "owner", "provider", "status", "#calls", "#in doubt", "changed", "provider's key"}}

func (v *view) stepCells(s ops.Step) []cell {
	v.ReadAt = s.ReadAt
	return []cell{linked(s.Step, v.Link.Step(s.Scope, s.Key, s.Step)), mono(s.Scope + " " + s.Key), plain(s.Provider), status(s.Status), figure(s.Calls),
		alarming(s.InDoubt, "odd"), plain(ago(s.UpdatedAt, s.ReadAt)), mono(s.ProviderKey)}
}

func step(v *view) error {
	ref := ops.StepRef{Scope: v.param("scope"), Key: v.param("key"), Step: v.param("step")}
	v.Title = "Step " + ref.Step
	s, err := see(v, ref.Get)
	if err != nil {
		return err
	}
	v.ReadAt = s.ReadAt
	if s.Status == ops.StatusUnknown {
		v.add(note{Class: "notice", Text: "The call was sent, and no answer was recorded. It is not repeated, because that may take effect a second time.",
			Hint: "ask the provider about the key " + s.ProviderKey + ", then say what it answered"})
	}
	owner := mono(s.Scope + " " + s.Key)
	scope, ofCommand := strings.CutPrefix(s.Scope, "command/")
	switch {
	case s.JobID != 0:
		owner.Link = v.Link.Job(s.JobID)
	case ofCommand:
		owner.Link = v.Link.Command(scope, s.Key)
	default:
		owner.Link = v.Link.Story(s.Key, s.Scope)
	}
	v.add(facts{{"status", status(s.Status)}, {"owner", owner}, {"provider", plain(s.Provider)}, {"provider's key", mono(s.ProviderKey)}, {"provider's reference", mono(s.Reference)},
		{"recovery", plain(s.Recovery)}, {"calls", figure(s.Calls)}, {"calls in doubt", alarming(s.InDoubt, "odd")}, {"fence of the newest call", plain(s.Fence)},
		{"first call", at(s.FirstCalledAt)}, {"nothing was sent after", at(s.LastNotAfter)}, {"the provider remembers the key until", at(s.MemoryEndsAt)},
		{"failure", plain(strings.TrimSpace(s.FailureCode + " " + s.FailureMessage))}})
	v.add(v.actions(operator.Step(s)))
	t := table{Caption: "The newest 100 calls and probes, oldest first", Empty: empty{Text: "No call was recorded."}, Head: []string{"started", "what", "#fence", "outcome", "ended", "reference", "detail"}}
	for _, c := range s.History {
		outcome := plain(c.Outcome)
		if c.Outcome == "" {
			outcome = cell{Text: "no answer was recorded", Class: "odd"}
		}
		detail := ""
		for _, m := range operator.Members(c.Detail) {
			detail += m.Name + "=" + m.Value + " "
		}
		t.Rows = append(t.Rows, []cell{at(c.StartedAt), yes(c.Probe, "probe", "call"), plain(c.Fence), outcome, at(c.EndedAt), mono(c.Reference), plain(short(300, detail))})
	}
	v.add(heading("Calls"), t)
	v.byHand(s.Changes)
	return nil
}
