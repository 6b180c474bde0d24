package lab

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The guide shows the ways, their matrix and their leaks as the table has them. Write it with
// PAWL_WRITE=1.
func TestGuide_ShowsTheWays(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../../../../docs/guides/patterns.md", "<!-- ways -->\n", "<!-- end of ways -->"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	shown, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no %q and %q", file, begin, end)
	}
	if shown == guide() {
		return
	}
	if os.Getenv("PAWL_WRITE") == "" {
		t.Fatalf("%s is stale: run PAWL_WRITE=1 go test -run TestGuide ./cmd/pawl/internal/lab", file)
	}
	if err := os.WriteFile(file, []byte(before+begin+guide()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func guide() string {
	var out strings.Builder
	head, rule := "| way |", "|---|"
	for _, b := range columns() {
		head, rule = head+" "+b.Title+" |", rule+"---|"
	}
	out.WriteString("\n" + head + "\n" + rule + "\n")
	for _, w := range ways {
		fmt.Fprintf(&out, "| %s |", w.Title)
		for _, b := range columns() {
			fmt.Fprintf(&out, " %s |", strings.ReplaceAll("**"+w.Cell(b.Name)+"**", "**fine**", "fine"))
		}
		out.WriteString("\n")
	}
	out.WriteString("\n| way | what a worker does |\n|---|---|\n")
	for _, w := range ways {
		fmt.Fprintf(&out, "| %s | %s |\n", w.Title, w.About)
	}
	out.WriteString("\n| way | button | when the worker is at | the order is | because |\n|---|---|---|---|---|\n")
	for _, w := range ways {
		for _, l := range w.Leaks {
			fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", w.Title, l.Title(), l.At, l.Outcome, l.Why)
		}
	}
	out.WriteString("\n")
	return out.String()
}

// Each leak belongs to a button of the matrix, each cell has its outcomes once, and Pawl has none.
func TestWays_Table(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, w := range ways {
		if names[w.Name] || w.Title == "" || w.About == "" {
			t.Errorf("%q has no name of its own, no title or no sentence", w.Name)
		}
		names[w.Name] = true
		if (w.Name == withPawl) != (w.handle == nil) || (w.Name == withPawl) != (len(w.Leaks) == 0) {
			t.Errorf("%s: %d leaks; a way leaks if it is by hand", w.Name, len(w.Leaks))
		}
		for _, l := range w.Leaks {
			if l.Title() == l.Button || l.Why == "" || l.Outcome == fine {
				t.Errorf("%s: %+v", w.Name, l)
			}
		}
	}
	if w, known := wayOf(byDefault); !known || w.Cell("kill") != "lost" || w.Cell("restart") != "lost, doubled" || w.Cell("freeze") != "fine" {
		t.Errorf("%+v", w)
	}
}
