//go:build proof

package main

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// A clone fetches no module of Pawl, for any version that the modules require of each other. That
// holds before the first tag, and between set and the push of the tags. Here, a fetch of one of our
// modules is forbidden and would fail.
func TestWorkspace_FetchesNothingOfPawl(t *testing.T) {
	if *released != "" {
		t.Skip("it is about the working tree")
	}
	r := *ours
	r.env = append(os.Environ(), "GOWORK=", "GOPRIVATE="+core, "GOVCS="+core+":off")
	args := []string{"list", "-deps", "-test"}
	for _, dir := range r.tree.modules() {
		args = append(args, "./"+path.Join(dir, "..."))
	}
	packages := strings.Fields(do(t, &r, r.tree.root, "go", args...))
	if !slices.Contains(packages, core+"/observe/otelpawl") || !slices.Contains(packages, core+"/cmd/pawl") {
		t.Errorf("the workspace lists %d packages, and not those of all modules", len(packages))
	}
	do(t, &r, r.tree.root, "go", "list", "-m", "all")

	// Without the replace lines the same commands fail, which shows that the test detects a fetch.
	bad := rehearsalOf(t, planted(t, "CHANGELOG.md", ""))
	without(t, path.Join(bad.tree.root, "go.work"))
	for _, dir := range bad.tree.modules() {
		without(t, path.Join(bad.tree.root, dir, "go.mod"))
	}
	bad.env = r.env
	if out, err := bad.run(bad.tree.root, "go", "list", "-m", "all"); err == nil || !strings.Contains(out, core) {
		t.Errorf("without replace lines go list ended with %v\n%.500s", err, out)
	}
}

// without removes the lines that replace our modules from a file.
func without(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	lines := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(line string) bool { return strings.HasPrefix(line, "replace "+core) })
	must(t, os.WriteFile(name, []byte(strings.Join(lines, "")), 0o644))
}
