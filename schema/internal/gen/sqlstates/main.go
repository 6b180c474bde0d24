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

// asked is the section of errors.md on functions that inspect an error.
const asked = "\n## Ask what an error means\n\nCall these functions instead of comparing texts or codes of PostgreSQL.\n\n" +
	"| call | answer |\n|---|---|\n" +
	"| `errors.Is(err, pawl.ErrKeyReused)` | the error has this code, also if it is wrapped |\n" +
	"| `pawl.Retryable(err)` | the same call may succeed later |\n" +
	"| `pawl.MayHaveHappened(err)` | the reply to COMMIT was lost: claim the same key again, and read the answer |\n" +
	"| `pawl.Unreachable(err)` | the database was not reached, or takes no writes now |\n" +
	"| `pawl.IsFinal(err)` | no retry can help |\n" +
	"| `pawl.Classify(err)` | who tries again, and what; `pawl.Classes()` returns [the table](../guides/choose.md#what-an-error-means) |\n"

func docPage(states []state) []byte {
	var b bytes.Buffer
	b.WriteString("# Error codes\n\nGenerated from `schema/sqlstates.csv`; edit that file and run `go generate`.\n\n" +
		"Expected results are rows with an `outcome`. The following codes are errors. Each aborts the transaction in which it was\n" +
		"raised.\n\n" +
		"| SQLSTATE | Go | meaning | retry? | next step |\n|---|---|---|---|---|\n")
	for _, s := range states {
		fmt.Fprintf(&b, "| `%s` | `pawl.Err%s` | %s | %s | %s |\n", s.sqlstate, s.name, s.meaning, s.retry, s.next)
	}
	b.WriteString("\nCallers need one rule: on P4020, *drop this attempt*.\n")
	b.WriteString(asked)
	return b.Bytes()
}
