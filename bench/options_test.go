package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse_HelpTeaches(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if _, err := parse([]string{"-help"}, &out); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help ends with %v, want flag.ErrHelp", err)
	}
	for _, want := range []string{"Examples", "go run ./bench -quick", "-json file", "-only parts"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help lacks %q:\n%s", want, out.String())
		}
	}
}

// Invalid options are refused before anything is measured, and the error contains the next step.
func TestParse_RefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct{ args, want string }{
		{"-nosuch", "-help"},
		{"quick", `"quick" belongs to no flag`},
		{"-json " + filepath.Join(dir, "missing", "f.json"), "mkdir -p " + filepath.Join(dir, "missing")},
		{"-json " + dir, "it is a directory"},
		{"-cpuprofile " + filepath.Join(dir, "missing", "p"), "mkdir -p"},
	} {
		if _, err := parse(strings.Fields(c.args), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.args, err, c.want)
		}
	}
	if _, err := parse([]string{"-json", filepath.Join(dir, "f.json")}, io.Discard); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the check has left %v, %v", left, err)
	}
}

func TestChoose_TakesRowsAndLinesByPart(t *testing.T) {
	t.Parallel()
	plans := allPlans()
	chosen, err := choose(plans, scales["full"], []string{"noop", "zombie"}, "Pawl")
	if err != nil || len(chosen) != 2 || len(chosen[0].entries) != 2 || len(chosen[1].entries) != 3 {
		t.Errorf("got %d rows, %v", len(chosen), err)
	}
	if all, err := choose(plans, scales["full"], []string{""}, ""); err != nil || len(all) != len(plans) {
		t.Errorf("no part must take all %d rows, got %d, %v", len(plans), len(all), err)
	}
	if one, err := choose(plans, scales["full"], []string{"zombie", ""}, ""); err != nil || len(one) != 1 {
		t.Errorf("a comma at the end must not take every row, got %d, %v", len(one), err)
	}
	if two, err := choose(plans, scales["quick"], []string{"held"}, ""); err != nil || len(two) != 1 {
		t.Errorf("-quick must leave the slow row out, got %d, %v", len(two), err)
	}
}

func TestChoose_SaysWhatThereIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scale, only, who, want string
	}{
		{"full", "nosuch", "", `"nosuch": list them`},
		{"full", "noop,nosuch", "", `"nosuch": list them`},
		{"full", "noop", "nobody", "the names are Pawl; Pawl, batch; River; loop; pgbench"},
		{"quick", "held-half", "", "without it"},
	} {
		_, err := choose(allPlans(), scales[c.scale], strings.Split(c.only, ","), c.who)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("-only %s -who %s: got %v, want an error with %q", c.only, c.who, err, c.want)
		}
	}
}

func TestLoad_RefusesOtherFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"page.md": "# Performance", "other.json": `{"name": "pawl"}`, "empty.json": "{}"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(file); err == nil || !strings.Contains(err.Error(), "is not a run's report") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := load(filepath.Join(dir, "missing.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: got %v", err)
	}
}
