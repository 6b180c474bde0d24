package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A directory with files is refused and not changed. One with only .git counts as empty.
func TestInit_RefusesADirectoryThatIsNotEmpty(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine := filepath.Join(dir, "main.go")
	if err := os.WriteFile(mine, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, pawl(t, "", "init", dir, "--source", "../.."), 1, "is not empty", "main.go", "choose another directory")
	if text, _ := os.ReadFile(mine); string(text) != "mine" {
		t.Error("it was overwritten")
	}
	if there, _ := os.ReadDir(dir); len(there) != 1 {
		t.Errorf("%d files are there", len(there))
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if r := mustPawl(t, "", "init", dir, "--source", "../..", "--module", "example.com/mine", "--no-tidy"); !strings.Contains(r.stderr, "go mod tidy") {
		t.Errorf("the next step is not named: %q", r.stderr)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "go.mod")); !strings.HasPrefix(string(text), "module example.com/mine\n") {
		t.Errorf("go.mod is %q", text)
	}
}

// The directory of the sources may have any name.
func TestInit_SourcesInAStrangePlace(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"with a space", `with"quotes'`, "with // two", "(with) parentheses"} {
		source, dir := filepath.Join(t.TempDir(), name), t.TempDir()
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(root, source); err != nil {
			t.Fatal(err)
		}
		mustPawl(t, "", "init", dir, "--source", source, "--no-tidy")
		edit := exec.Command("go", "mod", "edit", "-json")
		edit.Dir = dir
		out, err := edit.CombinedOutput()
		var mod struct {
			Replace []struct{ New struct{ Path string } }
		}
		if err != nil || json.Unmarshal(out, &mod) != nil || len(mod.Replace) != 1 || mod.Replace[0].New.Path != source {
			t.Errorf("%q: %v: %s", source, err, out)
		}
	}
}

// If the modules cannot be downloaded, the files stay, and the error names the remaining step.
func TestInit_SaysWhatIsLeftWithoutModules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := command(t, "", "init", dir, "--source", "../..")
	cmd.Env = append(cmd.Env, "PATH="+t.TempDir()) // without a go command
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "the files are written") || !strings.Contains(string(out), "run in "+dir+": go mod tidy") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "main.go")); err != nil {
		t.Error(err)
	}
}

// A command behind -- runs on the server, and its failure is reported.
func TestDevPostgres_RunsACommand(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pgdata")
	r := mustPawl(t, "", "dev", "postgres", "--dir", dir, "--", binary, "migrate", "check")
	if !strings.Contains(r.stdout, "ok: the database fits this build") {
		t.Errorf("%+v", r)
	}
	if r := pawl(t, "", "dev", "postgres", "--dir", dir, "--", "sh", "-c", "exit 7"); r.code != 1 || !strings.Contains(r.stderr, "exit status 7") {
		t.Errorf("%+v", r)
	}
	if r := pawl(t, "", "dev", "postgres", "--dir", dir, "--", "/no/such/program"); r.code != 2 || !strings.Contains(r.stderr, "check the command behind --") {
		t.Errorf("%+v", r)
	}
}
