package verdict

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write the table to the page")

// The page shows the table. To write it: go test ./internal/verdict -write
func TestTable_IsOnThePage(t *testing.T) {
	const path, begin, end = "../../docs/reference/verdicts.md", "<!-- verdicts -->\n", "<!-- end -->"
	var table strings.Builder
	table.WriteString("| SQLSTATE | meaning | of a statement of Pawl's | of a handler, its transaction stands | its transaction is gone |\n|---|---|---|---|---|\n")
	for _, r := range append(Table[:len(Table):len(Table)], Row{"any other", Other.Own, Other.Handler, Other.Lost, "", "", "", Other.Why}, Row{"none", Plain.Own, Plain.Handler, Plain.Lost, "", "", "", Plain.Why}) {
		name := r.Code
		if len(name) < 5 {
			name += strings.Repeat("x", 5-len(name))
		}
		if r.Code == "none" {
			name = "none"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", name, r.Why, r.Own, r.Handler, r.Lost)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", path)
	}
	want := before + begin + table.String() + end + after
	if *write {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Errorf("%s is not the table: go test ./internal/verdict -write", path)
	}
}

// Every row is reached: none stands behind one that covers it.
func TestTable_NoRowIsCovered(t *testing.T) {
	for i, r := range Table {
		if got := Of(r.Code); got != r {
			t.Errorf("row %d, %s, is covered by %s", i, r.Code, got.Code)
		}
	}
}
