//go:build proof

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The published modules of the working tree can be fetched.
func TestTree_IsFit(t *testing.T) {
	for _, found := range working.fit() {
		t.Error(found)
	}
}

// Each module, tests included, builds with exactly the requirements of its go.mod.
func TestModules_BuildByThemselves(t *testing.T) {
	if *released != "" {
		t.Skip("it is about the working tree")
	}
	must(t, ours.eachByItself(working, "vet", "./..."))
}

// A module that uses what its go.mod does not require is found, although the workspace has it.
func TestModules_AMissingRequirementIsFound(t *testing.T) {
	bad := planted(t, "guard/planted.go", "package guard\n\nimport _ \"github.com/prometheus/client_golang/prometheus\"\n")
	if err := rehearsalOf(t, bad).eachByItself(bad, "mod", "tidy", "-diff"); err == nil || !strings.Contains(err.Error(), "prometheus/client_golang") {
		t.Errorf("tidy says %v", err)
	}
}

// Errors that would prevent users from fetching a module are found before a tag is created.
func TestFit_FindsUnfetchableModules(t *testing.T) {
	for name, plant := range map[string]struct{ file, text, want string }{
		"a replace":                     {"observe/go.mod", "\nreplace github.com/pawl-go/pawl => ..\n", "has a replace"},
		"a replace of another's module": {"go.mod", "\nreplace golang.org/x/text => golang.org/x/text v0.1.0\n", "has a replace"},
		"an exclude":                    {"cmd/pawl/go.mod", "\nexclude golang.org/x/text v0.1.0\n", "has a replace or exclude"},
		"an unpublished module":         {"transport/pawlsqs/go.mod", "\nrequire github.com/pawl-go/pawl/internal/testbed/drivertest v0.0.0\n", "which is not published"},
		"a module of unknown kind":      {"guard/go.mod", "module github.com/pawl-go/pawl/guard\n", "neither one of the published"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := planted(t, plant.file, plant.text)
			if found := strings.Join(bad.fit(), "\n"); !strings.Contains(found, plant.want) {
				t.Errorf("found %q, not %q", found, plant.want)
			}
		})
	}
}

// A module that is released before one of its requirements cannot contain its hash.
func TestSet_RefusesAModuleThatRequiresALaterOne(t *testing.T) {
	bad := planted(t, "transport/pawlsqs/go.mod", "\nrequire github.com/pawl-go/pawl/observe v0.0.0\n")
	if err := bad.set("v0.1.0"); err == nil || !strings.Contains(err.Error(), "not released before it") {
		t.Errorf("set says %v", err)
	}
}

func TestSet_RefusesInvalidVersions(t *testing.T) {
	c := planted(t, "CHANGELOG.md", "")
	for _, version := range []string{"", "0.1.0", "v0.1", "v0.1.0+build", "latest"} {
		if err := c.set(version); err == nil {
			t.Errorf("%q was set", version)
		}
	}
}

// These two tests must fail for a broken release. Otherwise the tests above would not detect what
// users meet.
func TestGet_FailsWithoutAnEmbeddedFile(t *testing.T) {
	bad := planted(t, "CHANGELOG.md", "")
	bad.files = slices.DeleteFunc(bad.files, func(name string) bool { return name == "schema/roles.sql" })
	r := rehearsalOf(t, bad)
	dir := t.TempDir()
	do(t, r, dir, "go", "mod", "init", "example.com/consume")
	do(t, r, dir, "go", "get", core+"@"+r.version)
	if out, err := r.run(dir, "go", "build", core+"/schema"); err == nil || !strings.Contains(out, "roles.sql") {
		t.Errorf("a build without roles.sql ended with %v\n%s", err, out)
	}
}

func TestInstall_FailsWithAReplace(t *testing.T) {
	r := rehearsalOf(t, planted(t, "cmd/pawl/go.mod", "\nreplace github.com/pawl-go/pawl => ../..\n"))
	r.env = append(r.env, "GOBIN="+t.TempDir())
	if out, err := r.run(t.TempDir(), "go", "install", pathOf("cmd/pawl")+"@"+r.version); err == nil || !strings.Contains(out, "replace directives") {
		t.Errorf("an install with a replace ended with %v\n%s", err, out)
	}
}

// planted returns a copy of the working tree with a text added to one of its files.
func planted(t *testing.T, name, text string) *tree {
	t.Helper()
	c, err := working.copyTo(t.TempDir())
	must(t, err)
	f, err := os.OpenFile(filepath.Join(c.root, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, err)
	must(t, f.Close())
	if !slices.Contains(c.files, name) {
		c.files = append(c.files, name)
	}
	return c
}

func rehearsalOf(t *testing.T, of *tree) *rehearsal {
	t.Helper()
	r, err := rehearse(of)
	must(t, err)
	t.Cleanup(func() { must(t, r.close()) })
	return r
}
