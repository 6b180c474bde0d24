package dashboard

import (
	"context"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/ops"
)

// A record is one row of the audit with the object that was changed.
type record struct {
	ops.Change
	Target string `json:"target"` // "job 17"
}

const auditPage = 50

func audit(v *view) error {
	q := catalog.AuditQuery{Actor: v.param("actor"), Verb: v.param("verb"), Page: catalog.Page{Limit: auditPage + 1}}
	if after := v.param("after"); after != "" {
		if _, err := strconv.ParseInt(after, 10, 64); err != nil {
			return badParameter{"after", after, "what the link to the next page has"}
		}
		q.After = []string{after}
	}
	v.filter("audit", field{Name: "actor", Label: "who"}, field{Name: "verb", Label: "verb", Help: "job_retry"})
	found, err := see(v, func(ctx context.Context, db pawl.DB) ([]record, error) { return catalog.Audit[record](ctx, db, q) })
	if err != nil {
		return err
	}
	t := v.recordTable(found, noChanges)
	if v.asked() {
		t.Empty = noMatch
	}
	if len(found) > auditPage {
		t.Rows = t.Rows[:auditPage]
		t.Next = v.with("after", strconv.FormatInt(found[auditPage-1].ID, 10))
	}
	v.add(t)
	return nil
}

func (v *view) byHand(all []ops.Change) {
	records := make([]record, len(all))
	for i, c := range all {
		records[i].Change = c
	}
	v.add(heading("By hand"), v.recordTable(records, empty{Text: "No changes by hand."}))
}

func (v *view) recordTable(all []record, none empty) table {
	t := table{Caption: "Changes by hand", Head: []string{"at", "who", "verb", "what", "why"}, Empty: none}
	for _, r := range all {
		what := mono(r.Target)
		if id, is := strings.CutPrefix(r.Target, "job "); is {
			what.Link = v.Link.To("job", "id", id)
		}
		t.Rows = append(t.Rows, []cell{at(r.At), plain(r.Actor), mono(r.Verb), what, plain(r.Reason)})
	}
	return t
}
