package operator

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

// A Verb is one thing that an operator can do.
type Verb struct {
	Noun    *Noun
	Name    string // of the SQL function, as it stands in the audit, and of the dashboard's page: "job_retry"
	Command string // in the group of its noun: "retry"

	Title  string  // of the dashboard's button and page
	Short  string  // for a list of commands
	Effect string  // what it does, and what that can cause
	More   string  // what the command's help says beside that
	Seen   []Field // what was seen of the thing: if it is not so any more, nothing changes
	Inputs []Field // what else the verb needs

	Danger  bool   // the dashboard's button warns
	Warning string // what cannot be taken back: the command asks; empty: it does not ask
	Doubles bool   // see [ops.Job.MayDouble]: the command asks for such jobs, and a selection leaves them out

	Example string                              // what stands behind the command's name; several lines: several calls
	Fits    func(row Values) bool               // whether the thing allows the verb as it stands; nil: always
	Check   func(p Values) (wrong, next string) // of values that do not go together; nil: all do
	Done    func(p Values, r ops.Result) string // the line about a change; nil: that of the noun
	Already string                              // the line if it was so already; empty: that of the noun

	Do      func(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error)
	Job     func(r ops.JobRef, ctx context.Context, db pawl.DB, by ops.By) (ops.Result, error)                        // in place of Do
	Jobs    func(s ops.Jobs, ctx context.Context, db pawl.DB, by ops.By, progress func(ops.Tally)) (ops.Tally, error) // nil: not for a selection
	Outcome ops.Outcome                                                                                               // of Jobs, for each that is changed
}

// All returns all verbs. Verbs of one noun stand together, in the order in which they are offered.
func All() []Verb { return table }

// Named returns the verb with a name that is in the table.
func Named(name string) Verb {
	return table[slices.IndexFunc(table, func(v Verb) bool { return v.Name == name })]
}

// Run does it. A value that does not fit is refused.
func (v Verb) Run(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error) {
	if err := v.Wrong(p, false); err != nil {
		return ops.Result{}, err
	}
	if v.Job != nil {
		return v.Job(ops.JobRef{ID: p.number("id"), Fence: p.number("fence")}, ctx, db, by)
	}
	return v.Do(ctx, db, p, by)
}

// Fields returns all values that the verb takes.
func (v Verb) Fields() []Field { return slices.Concat(v.Noun.Fields, v.Seen, v.Inputs) }

// Wrong returns a *[BadValue] for the first value that does not fit. A form has to say what was seen.
func (v Verb) Wrong(p Values, form bool) error {
	for i, f := range v.Fields() {
		shown := i < len(v.Noun.Fields)+len(v.Seen)
		seen := shown && i >= len(v.Noun.Fields)
		if value := p(f.Name); !f.Fits(value) && (value != "" || !seen || form && !f.Optional) {
			bad := &BadValue{f, value, f.Want()}
			if form && shown {
				bad.Want += ", as the page that led here has it"
			}
			return bad
		}
	}
	return nil
}

// Says is the line about a change, or about what was so already.
func (v Verb) Says(p Values, r ops.Result) string {
	if already := cmp.Or(v.Already, v.Noun.Already); already != "" && r.Outcome == ops.Unchanged {
		return Line(already, p, r)
	}
	if v.Done != nil {
		return v.Done(p, r)
	}
	return Line(cmp.Or(v.Noun.Done, v.Noun.What+" $outcome"), p, r)
}

// line is the line that [Line] makes of a text.
func line(text string) func(Values, ops.Result) string {
	return func(p Values, r ops.Result) string { return Line(text, p, r) }
}

// Line fills a line for a terminal: $NAME is the value of a field, and $outcome, $was, $now, $job and $wait are of the result.
func Line(line string, p Values, r ops.Result) string {
	return os.Expand(line, func(name string) string {
		switch name {
		case "outcome":
			return string(r.Outcome)
		case "was":
			return cmp.Or(text.Visible(r.Was), "-")
		case "now":
			return cmp.Or(text.Visible(r.Now), "-")
		case "job":
			return number(r.JobID)
		case "wait":
			return r.RetryAfter.Round(time.Second).String()
		}
		return text.Visible(p(name))
	})
}

// number is an id, of which 0 is none.
func number(n int64) string {
	if n == 0 {
		return "-"
	}
	return id(n)
}
