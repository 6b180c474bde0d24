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

// A Verb is one action of an operator.
type Verb struct {
	Noun *Noun
	// name of the SQL function, of the audit's verb and of the dashboard's page: "job_retry"
	Name    string
	Command string // command name within the noun's group: "retry"

	Title  string  // title of the dashboard's button and page
	Short  string  // for a list of commands
	Effect string  // what it does, and the possible consequences
	More   string  // additional help text of the command
	Seen   []Field // values that the operator saw: if one has changed, nothing happens
	Inputs []Field // other values that the verb needs

	Danger bool // the dashboard's button warns
	// what cannot be undone: the command asks for confirmation; empty: it does not ask
	Warning string
	// see [ops.Job.MayDouble]: the command asks about such jobs, and a selection leaves them out
	Doubles bool

	// arguments of the command; several lines: several calls
	Example string
	// whether the thing allows the verb in its current state; nil: always
	Fits  func(row Values) bool
	Check func(p Values) (wrong, next string) // checks values together; nil: no check
	Done  func(p Values, r ops.Result) string // line about a change; nil: that of the noun
	// line if nothing had to change; empty: that of the noun
	Already string

	Do func(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error)
	// in place of Do
	Job func(r ops.JobRef, ctx context.Context, db pawl.DB, by ops.By) (ops.Result, error)
	// nil: not for a selection
	Jobs func(s ops.Jobs, ctx context.Context, db pawl.DB, by ops.By, progress func(ops.Tally)) (ops.Tally, error)
	// of Jobs, for each changed job
	Outcome ops.Outcome
}

// All returns all verbs. Verbs of one noun are adjacent, in the order in which they are offered.
func All() []Verb { return table }

// Named returns the verb with the given name. It panics if the table has none.
func Named(name string) Verb {
	return table[slices.IndexFunc(table, func(v Verb) bool { return v.Name == name })]
}

// Run runs the verb. It returns an error for a value that does not fit.
func (v Verb) Run(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error) {
	if err := v.Wrong(p, false); err != nil {
		return ops.Result{}, err
	}
	if v.Job != nil {
		return v.Job(ops.JobRef{ID: p.number("id"), Fence: p.number("fence")}, ctx, db, by)
	}
	return v.Do(ctx, db, p, by)
}

// Fields returns all fields of the verb.
func (v Verb) Fields() []Field { return slices.Concat(v.Noun.Fields, v.Seen, v.Inputs) }

// Wrong returns a *[BadValue] for the first value that does not fit. A form must also give the
// values that the operator saw.
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

// Says returns the line about a change, or the line that nothing had to change.
func (v Verb) Says(p Values, r ops.Result) string {
	if already := cmp.Or(v.Already, v.Noun.Already); already != "" && r.Outcome == ops.Unchanged {
		return Line(already, p, r)
	}
	if v.Done != nil {
		return v.Done(p, r)
	}
	return Line(cmp.Or(v.Noun.Done, v.Noun.What+" $outcome"), p, r)
}

// line returns a function that fills text with [Line].
func line(text string) func(Values, ops.Result) string {
	return func(p Values, r ops.Result) string { return Line(text, p, r) }
}

// Line fills a line for a terminal. $NAME is the value of a field; $outcome, $was, $now, $job and
// $wait come from the result.
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

// number formats an id; 0 means none.
func number(n int64) string {
	if n == 0 {
		return "-"
	}
	return id(n)
}
