//go:build proof

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// set writes what the go command would write: requirements, hashes and their order, in every
// module.
func TestSet_LeavesEveryModuleTidy(t *testing.T) {
	if *released != "" {
		t.Skip("it is about the working tree")
	}
	for _, dir := range ours.tree.modules() {
		do(t, ours, filepath.Join(ours.tree.root, dir), "go", "mod", "tidy", "-diff")
	}
}

// RELEASING.md names every published module, its tag, and its directory where one must be edited.
func TestGuide_NamesEveryPublishedModule(t *testing.T) {
	text, err := os.ReadFile("../../../RELEASING.md")
	must(t, err)
	var rows []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `"+core) {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	var want []string
	for _, dir := range published {
		want = append(want, "| `"+pathOf(dir)+"` | `"+tagOf(dir, "v0.2.0")+"` |")
	}
	if got, want := strings.Join(rows, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("RELEASING.md has the table\n%s\nand not\n%s", got, want)
	}
	if loop := "for m in " + strings.Join(published, " ") + ";"; !strings.Contains(string(text), loop) {
		t.Errorf("RELEASING.md does not loop %q", loop)
	}
}
