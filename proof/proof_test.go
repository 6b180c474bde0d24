package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil { // a run starts at the root
		panic(err)
	}
	os.Exit(m.Run())
}

// Each test that the gate omits belongs to a stage.
func TestStages_CoverEveryProofTest(t *testing.T) {
	var said strings.Builder
	for _, s := range stages {
		words, err := s.command()
		if err != nil {
			t.Fatal(err)
		}
		said.WriteString(strings.Join(words, " ") + "\n")
		if !strings.HasPrefix(words[0], "proof/") {
			continue // a script below .ci runs tests of the gate
		}
		text, err := os.ReadFile(words[0])
		if err != nil {
			t.Fatal(err)
		}
		said.Write(text)
	}
	files := 0
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_proof_test.go") {
			return err
		}
		files++
		place := "(^|[ \"/])" + regexp.QuoteMeta(filepath.Dir(path)) + `([ "\n]|$)`
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			place += "|" + regexp.QuoteMeta(dir) + `/\.\.\.`
		}
		if !regexp.MustCompile("(?m)" + place).MatchString(said.String()) {
			t.Errorf("%s is in no stage", path)
		}
		text, err := os.ReadFile(path)
		if !tagged.Match(text) {
			t.Errorf("%s has not the build tag proof", path)
		}
		return err
	})
	if err != nil || files < 50 {
		t.Fatalf("%d files: %v", files, err)
	}
}

// tagged matches a file that only the proof compiles.
var tagged = regexp.MustCompile(`^//go:build proof( && .*)?\n`)

// A file with the proof tag has a name of the proof, not of the gate.
func TestTag_ShowsInTheName(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_proof_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if tagged.Match(text) {
			t.Errorf("%s: name it *_proof_test.go", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Each pathspec of a stage matches files. A stage whose inputs do not exist would never become
// stale again.
func TestStages_HaveInputs(t *testing.T) {
	for _, s := range stages {
		for _, spec := range slices.Concat(s.inputs...) {
			if strings.HasPrefix(spec, ":!") {
				continue
			}
			if list, err := git(t.Context(), "ls-files", "--cached", "--others", "--exclude-standard", "--", spec); err != nil || list == "" {
				t.Errorf("stage %s: %q matches no file (%v)", s.name, spec, err)
			}
		}
	}
}

// A change of an input changes the hash. Other changes do not.
func TestTree_HashIsOfTheInputs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hash := func() string {
		t.Helper()
		h, err := tree{}.hash([][]string{{"*.sql", ":!c.sql", ":!e.sql"}, {"e.sql"}})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if _, err := git(t.Context(), "init", "-q"); err != nil {
		t.Fatal(err)
	}
	write("a.sql", "one")
	first := hash()
	write("b.txt", "other")
	write("c.sql", "excluded")
	if hash() != first {
		t.Error("what is no input changed the hash")
	}
	write("a.sql", "two")
	if hash() == first {
		t.Error("an input changed and the hash did not")
	}
	write("a.sql", "one")
	write("e.sql", "named by the second set")
	if hash() == first {
		t.Error("an input of the second set is new and the hash is the same")
	}
	first = hash()
	write("d.sql", "new")
	if hash() == first {
		t.Error("an input is new and the hash is the same")
	}
}

// A stage fails if a test or the command failed, and lists the failures. Seeds are kept.
func TestStage_ListsFailures(t *testing.T) {
	for name, c := range map[string]struct {
		script   string
		failures []string
		seeds    []string
		printed  string
	}{
		"passes":           {"echo '=== RUN TestA'; echo '    a_test.go:1: seed 17'; echo '    a_test.go:2: counted: 7 sent'; echo '--- PASS: TestA'; echo ok", nil, []string{"17"}, "ok\n"},
		"a test fails":     {"echo '--- FAIL: TestA (1.2s)'; echo '    a_test.go:3: why'; exit 1", []string{"TestA"}, nil, "a_test.go:3: why"},
		"it exits":         {"echo broken; exit 3", []string{"exit status 3"}, nil, "broken"},
		"it hides its end": {"echo '--- FAIL: TestA/b (0s)'", []string{"TestA/b"}, nil, "TestA/b"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			s := stage{name: "s", command: func() ([]string, error) { return []string{"sh", "-c", c.script}, nil }}
			r, err := s.run(t.Context(), &out)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.Failures, c.failures) || !slices.Equal(r.Seeds, c.seeds) || !strings.Contains(out.String(), c.printed) {
				t.Errorf("%+v, printed %s", r, out.String())
			}
			if name == "passes" && (out.String() != c.printed || !slices.Equal(r.Counted, []string{"7 sent"})) {
				t.Errorf("printed %q, counted %q", out.String(), r.Counted)
			}
		})
	}
}

// The page shows the last pass of each stage and later failures.
func TestRender_ShowsLastPassAndFailuresSince(t *testing.T) {
	day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	page, err := render("before\n"+pageBegins+"old\n"+pageEnds+"after\n", []result{
		{Stage: "doors", Began: day, Commit: "a1", Failures: []string{"TestOld"}},
		{Stage: "doors", Began: day, Commit: "a2", Counted: []string{"3 of old"}},
		{Stage: "doors", Began: day.AddDate(0, 0, 1), Commit: "b2", Seconds: 70, Load: "1.5", StallMS: 12, Counted: []string{"7 messages, 0 lost"}},
		{Stage: "doors", Began: day.AddDate(0, 0, 2), Commit: "c3", Failures: []string{"TestNew"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "after\n", "| 2026-11-02, b2 | 70 | 1.5 | 12 ms | failed on 2026-11-03 at c3 |", "| `browser` |"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page:\n%s", want, page)
		}
	}
	// Quotes of tests stand behind the mark, where the checks of pages do not read them.
	checked, printed, _ := strings.Cut(page, pagePrints)
	if strings.Contains(checked, "messages") || strings.Contains(checked, "TestNew") {
		t.Errorf("quotes stand before %q:\n%s", pagePrints, page)
	}
	for _, want := range []string{"- `doors`: 7 messages, 0 lost\n", "- `doors` failed at c3: TestNew\n", "\n" + pageEnds} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is not behind %q:\n%s", want, pagePrints, page)
		}
	}
	if strings.Contains(page, "old\n") || strings.Contains(page, "TestOld") || strings.Contains(page, "3 of old") {
		t.Errorf("the page keeps what is over:\n%s", page)
	}
}

// docs/proof.md is rendered from the recorded results.
func TestPage_IsRenderedFromTheResults(t *testing.T) {
	results, err := readResults()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := render(string(text), results); err != nil || string(text) != want {
		t.Errorf("%s is stale (%v): go run ./proof --page", pageFile, err)
	}
}

func TestRun_RefusesAStageThatIsNotThere(t *testing.T) {
	if err := run(t.Context(), []string{"brokres"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "--list") {
		t.Errorf("got %v", err)
	}
}
