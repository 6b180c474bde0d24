package dashboard

import (
	"context"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

// commands lists commands in the order of scope and key.
func commands(v *view) error {
	s := ops.Commands{Scope: v.param("scope"), Stale: v.param("stale") == "yes", After: v.param("after")}
	if status := v.param("status"); status != "" {
		s.Statuses = []ops.Status{ops.Status(status)}
	}
	v.add(filter{Address: v.Link.To("commands"), Fields: []field{{Name: "scope", Label: "scope", Value: s.Scope}, statusField(v.param("status"), ops.CommandStatuses()),
		{Name: "stale", Label: "only those that do not end without help (slow)", Value: v.param("stale"), Options: []string{"yes"}}}})
	found, err := see(v, s.List)
	if err != nil {
		return err
	}
	t := table{Caption: "Commands: one row for each idempotency key", Empty: "No command fits.", Head: []string{"key", "scope", "status", "#attempts", "changed", "answer", "remembered until"}}
	for _, c := range found.Rows {
		v.ReadAt = c.ReadAt
		answer := plain("")
		if c.ResponseStatus != 0 {
			answer = plain(fmt.Sprintf("HTTP %d", c.ResponseStatus))
		}
		t.Rows = append(t.Rows, []cell{linked(short(80, c.Key), v.Link.Command(c.Scope, c.Key)), plain(c.Scope), status(c.Status), figure(c.Attempts), plain(ago(c.UpdatedAt, c.ReadAt)), answer, at(c.ExpiresAt)})
	}
	if found.Next != "" {
		t.Next = v.Link.To("commands", "scope", s.Scope, "status", v.param("status"), "stale", v.param("stale"), "after", found.Next)
	}
	v.add(t)
	return nil
}

// statusField is a choice of statuses.
func statusField(value string, all []ops.Status) field {
	f := field{Name: "status", Label: "status", Value: value}
	for _, s := range all {
		f.Options = append(f.Options, string(s))
	}
	return f
}

// command shows one command without its answer.
func command(v *view) error {
	ref := ops.CommandRef{Scope: v.param("scope"), Key: v.param("key")}
	v.Title = "Command " + ref.Key
	c, err := see(v, func(ctx context.Context, db pawl.DB) (ops.Command, error) { return ref.Get(ctx, db) })
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
	v.add(heading("By hand"), v.changeTable(c.Changes, "No changes by hand."))
	return nil
}
