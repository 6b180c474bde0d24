package dashboard

import (
	"fmt"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

func commands(v *view) error {
	s := ops.Commands{Scope: v.param("scope"), Statuses: v.statuses(), Stale: v.param("stale") == "yes", After: v.param("after")}
	v.filter("commands", field{Name: "scope", Label: "scope"}, statusField(ops.CommandStatuses()), only("stale", "only those that do not end without help (slow)"))
	t := table{Caption: "Commands: one row for each idempotency key", Empty: noCommands, Head: []string{"key", "scope", "status", "#attempts", "changed", "answer", "remembered until"}}
	return list(v, t, s.List, func(c ops.Command) []cell {
		v.ReadAt = c.ReadAt
		answer := plain("")
		if c.ResponseStatus != 0 {
			answer = plain(fmt.Sprintf("HTTP %d", c.ResponseStatus))
		}
		return []cell{linked(short(80, c.Key), v.Link.Command(c.Scope, c.Key)), plain(c.Scope), status(c.Status), figure(c.Attempts), plain(ago(c.UpdatedAt, c.ReadAt)), answer, at(c.ExpiresAt)}
	})
}

func command(v *view) error {
	ref := ops.CommandRef{Scope: v.param("scope"), Key: v.param("key")}
	v.Title = "Command " + ref.Key
	c, err := see(v, ref.Get)
	if err != nil {
		return err
	}
	v.ReadAt = c.ReadAt
	if c.Status == ops.StatusUnknown {
		v.add(note{Class: "notice", Text: "An attempt fell silent. It may have taken effect.", Hint: "look into your tables for what the command writes, then say what you found"})
	}
	all := facts{{"status", status(c.Status)}, {"scope", plain(c.Scope)}, {"key", v.storyCell(c.Key, c.Scope)}, {"attempts", figure(c.Attempts)}, {"fence", plain(c.Fence)},
		{"claimed by", plain(c.ClaimedBy)}, {"lease until", at(c.LeaseExpiresAt)}, {"first seen", at(c.CreatedAt)}, {"changed", at(c.UpdatedAt)}, {"remembered until", at(c.ExpiresAt)}}
	if c.ResponseStatus != 0 {
		all = append(all, fact{"stored answer", plain(fmt.Sprintf("HTTP %d, %s", c.ResponseStatus, octets(c.ResponseOctets)))})
	}
	if c.FailureCode != "" || c.FailureMessage != "" {
		all = append(all, fact{"failure", plain(c.FailureCode + " " + c.FailureMessage)})
	}
	v.add(append(all, fact{"what was made", plain(c.RefType + " " + c.RefID)}, fact{"fingerprint of the payload", mono(c.Fingerprint)}))
	v.add(v.actions(operator.Command(c)))
	v.byHand(c.Changes)
	return nil
}
