package main

import (
	"strings"
	"testing"
)

// Without npm, or on a platform that the lock file has no Node for, the error says what to do.
func TestNodeHome_SaysWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	cache := t.TempDir()
	_, err := nodeHomeIn(t.Context(), func() (string, error) { return cache, nil })
	if err == nil || !strings.Contains(err.Error(), "npm is not on PATH: install it") && !strings.Contains(err.Error(), "run on linux/amd64 only") {
		t.Errorf("got %v", err)
	}
}

// What is printed beside a figure is the version that is installed.
func TestNodeVersion_IsThePinnedOne(t *testing.T) {
	t.Parallel()
	lock, err := nodeFiles.ReadFile("node/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"graphile-worker", "pg-boss"} {
		_, v, _ := strings.Cut(nodeVersion(name), " ")
		if want := `"node_modules/` + name + "\": {\n      \"version\": \"" + v + `"`; v == "" || !strings.Contains(string(lock), want) {
			t.Errorf("%s: the lock file does not pin %q", name, v)
		}
	}
	if strings.Contains(string(lock), `"resolved"`) {
		t.Error("the lock file names a registry: npm is to ask the user's own")
	}
}
