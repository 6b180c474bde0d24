package verdict

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write the table to the page")

// The page shows the table. To update the page: go test ./internal/verdict -write
func TestTable_IsOnThePage(t *testing.T) {
	const path, begin, end = "../../docs/reference/verdicts.md", "<!-- verdicts -->\n", "<!-- end -->"
	var table strings.Builder
	table.WriteString("| SQLSTATE | meaning | of a statement of Pawl's | of a handler, its transaction stands | its transaction is gone |\n|---|---|---|---|---|\n")
	for _, r := range append(Table[:len(Table):len(Table)], Row{"any other", Other.Own, Other.Handler, Other.Lost, "", "", "", Other.Why}, Row{"none", NoCode.Own, NoCode.Handler, NoCode.Lost, "", "", "", NoCode.Why}) {
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

// No row is hidden by one above it.
func TestTable_NoRowIsCovered(t *testing.T) {
	for i, r := range Table {
		if got := Of(r.Code); got != r {
			t.Errorf("row %d, %s, is covered by %s", i, r.Code, got.Code)
		}
	}
}

// Each predicate is true for exactly these codes. The page is generated from the table, so a
// mistake in a row would be on the page too.
func TestCodes_AreAskedByName(t *testing.T) {
	codes := []string{"", "22012", "23503", "42P01", "42501", "0A000", "25001", "25007", "XX000"}
	for _, r := range Table {
		codes = append(codes, (r.Code + "000")[:5])
	}
	for question, c := range map[string]struct {
		ask  func(string) bool
		want string
	}{
		"IsReadOnly": {IsReadOnly[string], "25006"},
		"IsBusy":     {IsBusy[string], "55P03"},
		"IsRace":     {IsRace[string], "40001 40P01"},
		"IsOutage":   {IsOutage[string], "08007 08000 57P02 57P00 53300 53100 25006"},
		"the server is asked whether it answers others, its transaction gone": {
			func(code string) bool { return Of(code).Lost == Ask }, "08007 08000 57P00 25006"},
		"the server is asked, its transaction stands": {
			func(code string) bool { return Of(code).Handler == Ask }, "08000 57P00 25006"},
		"no retry can help": {func(code string) bool { return Of(code).Handler == Final }, "23514 22000 22012 P4002 P4030"},
	} {
		for _, code := range codes {
			if got, want := c.ask(code), slices.Contains(strings.Fields(c.want), code); got != want {
				t.Errorf("%s, %q: %v, want %v", question, code, got, want)
			}
		}
	}
}
