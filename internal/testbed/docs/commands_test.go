package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// started is the first word of a command in a block, after the prompt and assignments.
var started = regexp.MustCompile(`^ *(?:\$ +)?(?:\w+=\S* +)*((?:\.\.?/)*[\w.-]+(?:/[\w.-]+)*)(?: |$)`)

// A file of the repository that a block of a page starts is executable.
func TestCommands_AreExecutable(t *testing.T) {
	t.Parallel()
	tree, found := os.DirFS(root), 0
	for _, page := range files(t, ".md") {
		n, wrong := notExecutable(tree, page, read(t, page))
		found += n
		for _, w := range wrong {
			t.Errorf("%s: %s", page, w)
		}
	}
	if found < 2 {
		t.Errorf("found only %d files that pages start", found)
	}
}

// A planted file without the bit is found.
func TestCommands_PlantedOffencesAreFound(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]int{
		"```\n$ tools/plain --now\n```\n":            1,
		"```console\n$ A=1 tools/plain \\\n```\n":    1,
		"```sh\n../tools/plain\n```\n":               1,
		"```sh\n./plain\n```\n":                      1,
		"```\n$ tools/runs --now\n```\n":             0,
		"```\n$ python3 tools/plain\n```\n":          0,
		"```\n$ tools\n$ elsewhere/plain\n```\n":     0,
		"Text.\ntools/plain\n":                       0,
		"```\n$ tools/plain:3: is no command\n```\n": 0,
	} {
		dir := t.TempDir()
		for name, mode := range map[string]fs.FileMode{"tools/plain": 0o644, "tools/runs": 0o755, "docs/plain": 0o644} {
			if err := os.MkdirAll(filepath.Join(dir, path.Dir(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
				t.Fatal(err)
			}
		}
		if _, wrong := notExecutable(os.DirFS(dir), "docs/page.md", page); len(wrong) != want {
			t.Errorf("%q: %v, want %d", page, wrong, want)
		}
	}
}

// notExecutable returns the number of files that the blocks of a page start, from the root or from
// the folder of the page, and those that are not executable.
func notExecutable(tree fs.FS, page, text string) (found int, wrong []string) {
	for _, block := range fence.FindAllString(text, -1) {
		for line := range strings.Lines(block) {
			m := started.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			if m == nil || !strings.Contains(m[1], "/") {
				continue
			}
			for _, name := range []string{path.Clean(m[1]), path.Join(path.Dir(page), m[1])} {
				info, err := fs.Stat(tree, name)
				if err != nil || !info.Mode().IsRegular() {
					continue
				}
				if found++; info.Mode()&0o111 == 0 {
					wrong = append(wrong, fmt.Sprintf("starts %s, which is not executable: chmod +x %s", m[1], name))
				}
				break
			}
		}
	}
	return found, wrong
}
