package step_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/step"
)

func writeFile(folder, name string, write func(io.Writer) error) (err error) {
	temporary, err := os.CreateTemp(folder, ".tmp-*")
	if err != nil {
		return err
	}
	renamed := false
	defer func() {
		if !renamed {
			err = errors.Join(err, os.Remove(temporary.Name()))
		}
	}()
	err = errors.Join(write(temporary), temporary.Chmod(0o644), temporary.Sync(), temporary.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), filepath.Join(folder, name)); err != nil {
		return err
	}
	renamed = true
	directory, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

// The file of a step is complete or absent, even if the attempt fails or panics while it writes.
func TestFiles_AreWholeOrAbsent(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, lies())
	folder := t.TempDir()
	id := b.claim().ID
	export := step.Step{Name: "export", Recovery: step.Repeatable(), Hooks: b.counters.Hooks()}
	var name string
	run := func(end func() error) error {
		_, err := step.Run(t.Context(), b.pool, b.reclaim(id), export, func(_ context.Context, c step.Call) (any, error) {
			name = c.Key()
			return nil, writeFile(folder, c.Key(), func(w io.Writer) error {
				_, err := io.WriteString(w, "first half, ")
				if there, _ := os.ReadFile(filepath.Join(folder, c.Key())); len(there) > 0 {
					t.Errorf("half of it is there: %q", there)
				}
				if err := errors.Join(err, end()); err != nil {
					return err
				}
				_, err = io.WriteString(w, "second half")
				return err
			})
		})
		return err
	}
	full := errors.New("the disk is full")
	for _, end := range []func() error{func() error { return full }, func() error { panic("in the middle") }} {
		if err := run(end); err == nil {
			t.Error("no error")
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
			t.Errorf("%v is left, %v", left, err)
		}
	}
	if err := run(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil || string(text) != "first half, second half" {
		t.Errorf("%q, %v", text, err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("%v is left, %v", left, err)
	}
	if err := writeFile(filepath.Join(folder, "none"), "x", func(io.Writer) error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// The guide contains the function that the test above runs. It syncs the file before the rename and
// the folder after it. Only a power failure would show that a sync is missing.
func TestFiles_OfTheGuide(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/guides/steps.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("file_test.go")
	if err != nil {
		t.Fatal(err)
	}
	function := regexp.MustCompile(`(?ms)^func writeFile.*?^}\n`)
	run := function.FindString(string(source))
	if run == "" || function.FindString(string(page)) != run {
		t.Error("writeFile of docs/guides/steps.md is not that of this file")
	}
	var calls []string
	for _, m := range regexp.MustCompile(`(temporary|os|directory)\.(Sync|Close|Rename|Open)\(`).FindAllStringSubmatch(run, -1) {
		calls = append(calls, m[1]+"."+m[2])
	}
	const want = "temporary.Sync temporary.Close os.Rename os.Open directory.Sync directory.Close"
	if got := strings.Join(calls, " "); got != want {
		t.Errorf("it calls %s, want %s", got, want)
	}
}
