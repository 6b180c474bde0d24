// Command sqlstates writes codes_gen.go and docs/reference/errors.md from schema/sqlstates.csv, the
// only list of SQLSTATEs. Run it with go generate in the module's root.
package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	if err := generate(root); err != nil {
		log.Fatalf("sqlstates: %v", err)
	}
}

func generate(root string) error {
	states, err := read(filepath.Join(root, "schema", "sqlstates.csv"))
	if err != nil {
		return err
	}
	source, err := format.Source(goFile(states))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "codes_gen.go"), source, 0o644); err != nil {
		return err
	}
	page := filepath.Join(root, "docs", "reference", "errors.md")
	if err := os.MkdirAll(filepath.Dir(page), 0o755); err != nil {
		return err
	}
	return os.WriteFile(page, docPage(states), 0o644)
}

type state struct{ sqlstate, name, meaning, retry, next string }

func read(path string) ([]state, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	table := csv.NewReader(f)
	table.Comment = '#'
	rows, err := table.ReadAll()
	if err != nil {
		return nil, err
	}
	var states []state
	for _, r := range rows[1:] {
		states = append(states, state{r[0], r[1], r[2], r[3], r[4]})
	}
	return states, nil
}

func goFile(states []state) []byte {
	var b bytes.Buffer
	b.WriteString("// Code generated from schema/sqlstates.csv by schema/internal/gen/sqlstates. DO NOT EDIT.\n\npackage pawl\n\n")
	b.WriteString("// The codes Pawl's SQL functions and Go packages report. docs/reference/errors.md lists them.\nconst (\n")
	for _, s := range states {
		fmt.Fprintf(&b, "\t// Code%s: %s. Retry: %s.\n\tCode%s Code = %q\n", s.name, s.meaning, s.retry, s.name, s.sqlstate)
	}
	b.WriteString(")\n\n// One error for each code. Compare with errors.Is.\nvar (\n")
	for _, s := range states {
		fmt.Fprintf(&b, "\tErr%s = &Error{Code: Code%s} // %s\n", s.name, s.name, s.meaning)
	}
	b.WriteString(")\n\nvar codeTexts = map[Code]codeText{\n")
	for _, s := range states {
		fmt.Fprintf(&b, "\tCode%s: {%q, %q},\n", s.name, s.meaning, s.next)
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// head is the text of errors.md above its table.
const head = "# Error codes\n\n" +
	"The functions of schema `pawl_v1` return an expected result as a row with a column `outcome` ([SQL](sql.md)). Anything\n" +
	"else is an error, with one of these codes or with one of PostgreSQL's ([outage or failure](verdicts.md)).\n\n" +
	"*Retry?* says whether the same call may succeed later although nothing else changes.\n\n" +
	"| SQLSTATE | Go | meaning | retry? | next step |\n|---|---|---|---|---|\n"

// notes are the sections of errors.md below its table: what a cell has no room for, and the
// functions that inspect an error.
const notes = "\n## Notes\n\n" +
	"- If an SQL function raises a code, the transaction in which you called it is aborted.\n" +
	"- P4032, P4040, P4041, P4042, P4051 and 08007 come from the Go client only. No SQL function raises them.\n" +
	"- P4029 of a command says when to retry: `command.RetryAfter(err)` in Go, and in SQL `retry_after` in DETAIL, in\n" +
	"  seconds.\n" +
	"- P4031: how to find out and to settle is described for\n" +
	"  [commands](../operating/stuck-keys.md#a-command-that-is-unknown) and for [steps](../guides/steps.md#unknown).\n" +
	"- P4040, P4041 and P4042 are returned by [package guard](../guides/choose.md#a-row-with-a-status), and mean a row of\n" +
	"  your table. With P4042 the error is committed in that row. If you do not acknowledge a message, its source delivers\n" +
	"  it again. Package `ops` also returns P4041, for an id or a key that does not exist.\n" +
	"- P4098 names its reason and the next step. The schema is missing, too old, or too new for this build. Or sequences are\n" +
	"  behind after logical replication, or row level security hides Pawl's rows.\n" +
	"- 08007: a retry depends on whether the transaction committed. Do not simply run the work again: claim the same key\n" +
	"  first. If it committed, the claim returns the stored result.\n" +
	"\n## Ask what an error means\n\nCall these functions instead of comparing texts or codes of PostgreSQL.\n\n" +
	"| call | result |\n|---|---|\n" +
	"| `errors.Is(err, pawl.ErrKeyReused)` | true if the error, or one that it wraps, has this code |\n" +
	"| `pawl.Retryable(err)` | true if the same call may succeed later although nothing else changes. False for 08007 |\n" +
	"| `pawl.MayHaveHappened(err)` | true for 08007 only: claim the same key again, and read the answer |\n" +
	"| `pawl.Unreachable(err)` | true if the database was not reached, or takes no writes now |\n" +
	"| `pawl.IsFinal(err)` | true if no retry can help: a handler's `pawl.Final`, bad data (class 22), CHECK (23514), P4002 and P4030 |\n" +
	"| `pawl.Classify(err)` | a `pawl.Class`: whether a retry helps, the party that retries, and what to do again. `pawl.Classes()` returns [the table](../guides/choose.md#what-an-error-means) |\n" +
	"\nThis page is generated from `schema/sqlstates.csv`.\n"

func docPage(states []state) []byte {
	var b bytes.Buffer
	b.WriteString(head)
	for _, s := range states {
		fmt.Fprintf(&b, "| `%s` | `pawl.Err%s` | %s | %s | %s |\n", s.sqlstate, s.name, s.meaning, s.retry, s.next)
	}
	b.WriteString(notes)
	return b.Bytes()
}
