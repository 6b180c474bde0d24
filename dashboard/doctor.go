package dashboard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/doctor"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/ops"
)

func diagnosis(v *view) error {
	d, err := see(v, func(ctx context.Context, db pawl.DB) (doctor.Diagnosis, error) {
		return doctor.Diagnose(ctx, db, doctor.Limits{})
	})
	if err != nil {
		v.add(note{Class: "trouble", Text: "The checks: " + trouble(err), Hint: "run them in a terminal, without the limit of 2 seconds: pawl doctor"})
	} else {
		v.diagnosed(d)
	}
	v.add(v.purgeLink(), heading("Stands still"))
	stales, err := see(v, func(ctx context.Context, db pawl.DB) ([]ops.Stale, error) {
		return catalog.Stale[ops.Stale](ctx, db, mostOfAClass)
	})
	if err != nil {
		v.add(note{Class: "trouble", Text: "What stands still: " + trouble(err), Hint: "look at the dead letters; or list it in a terminal: pawl stale"})
		return nil
	}
	v.add(v.staleTable(stales))
	return nil
}

// trouble shows an error of a part that has no filter to narrow.
func trouble(err error) string {
	if errors.Is(err, errSlow) {
		return "this took too long and was stopped"
	}
	return err.Error()
}

func (v *view) diagnosed(d doctor.Diagnosis) {
	found := table{Caption: "Findings", Head: []string{"check", "what was found", "why it matters", "what to do"}, Empty: empty{Text: "Nothing was found."}}
	for _, f := range d.Findings {
		found.Rows = append(found.Rows, []cell{mono(f.Check), plain(f.What), plain(f.Why), plain(f.Fix)})
	}
	v.add(found)
	if len(d.Unchecked) > 0 {
		unchecked := table{Caption: "Checks that could not be made", Head: []string{"check", "why not", "what to do"}}
		for _, f := range d.Unchecked {
			unchecked.Rows = append(unchecked.Rows, []cell{mono(f.Check), plain(f.Why), plain(f.Fix)})
		}
		v.add(unchecked)
	}
	still := facts{}
	for _, class := range slices.Sorted(maps.Keys(d.StandStill)) {
		still = append(still, fact{class, figure(d.StandStill[class])})
	}
	if len(still) > 0 {
		v.add(heading("Waits for a decision, by class"), still)
	}
	v.add(note{Class: "quiet", Text: "Checks that were made: " + strings.Join(d.Checked, ", ") + "."})
}

// mostOfAClass bounds the rows of each class, so that ten thousand dead letters do not hide one
// call of unknown outcome.
const mostOfAClass = 20

func (v *view) staleTable(all []ops.Stale) table {
	t := table{Caption: fmt.Sprintf("What waits for a decision, or for a worker to notice: at most %d of each class, the oldest", mostOfAClass), Head: []string{"what", "name", "class", "since", "why", "what to do"}, Empty: empty{Text: "Nothing stands still."}}
	for _, s := range all {
		name := mono(short(80, s.Scope+" "+s.Key))
		switch s.Kind {
		case "job":
			name = linked(s.Key, v.Link.To("job", "id", s.Key))
		case "command":
			name.Link = v.Link.Command(s.Scope, s.Key)
		case "step":
			name.Link = v.Link.To("steps", "scope", s.Scope, "key", s.Key)
		}
		t.Rows = append(t.Rows, []cell{plain(s.Kind), name, plain(s.Class), at(s.Since), plain(s.Reason), plain(s.Advice)})
	}
	return t
}
