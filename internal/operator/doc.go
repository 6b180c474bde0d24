// Package operator is the table of actions that an operator can take. It describes each verb of
// package ops once, with its texts and fields. The CLI builds commands from it, and the dashboard
// builds forms.
//
//	verb.go   verbs; field.go: the values they take
//	noun.go   the things that verbs act on, and their rows
//	table.go  the verbs
//	say.go    words for what the operator sees in both
//	seen.go   verbs that roll back if the thing has changed since the operator looked
//
// To add a verb, add a method to package ops and an entry to the table. Tests check that each
// method of ops that takes an [ops.By] has an entry (internal/testbed/surface). They also check
// that each entry has a command (cmd/pawl/internal/cli), and a page that the page of its thing
// links to (dashboard).
package operator
