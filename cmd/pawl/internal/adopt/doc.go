// Package adopt moves a team's table of processed messages to Pawl's inbox, as
// docs/guides/adopting.md describes it. The guide shows the SQL that this package generates.
//
//	table.go     finds the table in the catalog and refuses one that cannot be adopted
//	sql.go       generates the SQL of a table
//	plan.go      the steps: what each does and locks, and how to go back
//	step.go      runs a step
//	rehearse.go  plays all steps on a copy; actors.go: the consumers in it
package adopt

import "fmt"

// A Refusal says why a table or a step is refused, and what to do.
type Refusal struct{ Why, Next string }

func (r *Refusal) Error() string { return r.Why }

func refuse(next, why string, args ...any) error { return &Refusal{fmt.Sprintf(why, args...), next} }
