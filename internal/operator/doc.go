// Package operator is the table of what an operator can do by hand: each verb of package ops with its words and its fields, once. The command
// line makes its commands of it, and the dashboard its forms.
//
//	verb.go   what a verb is; field.go: what it takes
//	noun.go   what verbs are about, and what a row says of it
//	table.go  the verbs
//	seen.go   verbs that are taken back if the thing was not as it was seen
//
// A new verb is a method of package ops and an entry in the table. Tests hold that each method of ops that takes an [ops.By] has an entry
// (internal/testbed/surface), and that each entry has a command (cmd/pawl/internal/cli), and a page to which the page of its thing leads (dashboard).
package operator
