//go:build proof

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var released = flag.String("released", "", "try this version, which is published, and not the working tree")

var (
	working *tree      // the working tree
	ours    *rehearsal // a rehearsal of working, or the published version
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := rehearsed(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func rehearsed(m *testing.M) (code int, err error) {
	if working, err = openTree("."); err != nil {
		return 0, err
	}
	if *released != "" {
		ours = &rehearsal{version: *released, env: append(os.Environ(), "GOWORK=off")}
		return m.Run(), nil
	}
	if ours, err = rehearse(working); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	if built, err = os.MkdirTemp("", "release-files-*"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(built)) }()
	return m.Run(), nil
}

// A user's module in an empty directory fetches the published modules, builds, passes vet and
// starts.
func TestGet_BuildsAUsersModule(t *testing.T) {
	dir := usersModule(t)
	do(t, ours, dir, "go", "build", "-o", "consume", ".")
	do(t, ours, dir, "go", "vet", "./...")
	if said := do(t, ours, dir, filepath.Join(dir, "consume")); !strings.Contains(said, "needs schema version ") {
		t.Errorf("the program says %q", said)
	}
}

// usersModule makes a module that requires all published modules.
func usersModule(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	do(t, ours, dir, "go", "mod", "init", "example.com/consume")
	for _, m := range published {
		if m != "cmd/pawl" {
			do(t, ours, dir, "go", "get", pathOf(m)+"@"+ours.version)
		}
	}
	for _, name := range []string{"main.go", "main_test.go"} {
		must(t, copyFile(filepath.Join("testdata/user", name), filepath.Join(dir, name)))
	}
	do(t, ours, dir, "go", "mod", "tidy")
	return dir
}

// go install installs the command line with its embedded files.
func TestInstall_GivesTheCommandLine(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	r := *ours
	r.env = append(slices.Clone(r.env), "GOBIN="+bin)
	do(t, &r, dir, "go", "install", pathOf("cmd/pawl")+"@"+r.version)
	pawl := filepath.Join(bin, "pawl")
	for _, try := range []struct {
		args []string
		want string
	}{
		{[]string{"version"}, "pawl " + r.version + ", schema "},
		{[]string{"--help"}, "migrate"},
		{[]string{"migrate", "print"}, "pawl_v1.inbox_claim"},
		{[]string{"migrate", "print", "--roles"}, "pawl_operator"},
	} {
		if said := do(t, &r, dir, pawl, try.args...); !strings.Contains(said, try.want) {
			t.Errorf("pawl %s does not say %q:\n%.500s", strings.Join(try.args, " "), try.want, said)
		}
	}
	completes(t, "source <(pawl completion bash)", bin, "pawl")
	plays(t, pawl)
}

// do runs a command that must succeed.
func do(t *testing.T, r *rehearsal, dir, name string, args ...string) string {
	t.Helper()
	out, err := r.run(dir, name, args...)
	must(t, err)
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
