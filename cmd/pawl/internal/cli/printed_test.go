package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	hole    = regexp.MustCompile(`%[-+#0-9.\[\]]*[a-zA-Z]|\$\w+|\|\||[\n]`)
	quoteds = regexp.MustCompile(`'((?:[^'\n]|'')*)'`)
	apart   = strings.NewReplacer(".", " ", ",", " ", ":", " ", ";", " ", "?", " ", "(", " ", ")", " ", "'", " ", `"`, " ")
	small   = regexp.MustCompile(`^[a-z]+(?:[-_][a-z]+)*$`)
)

// A vocabulary has the texts between the values of all strings that commands print.
type vocabulary struct {
	phrases []string        // of several words, the longest first
	words   map[string]bool // those of one word
}

func (v *vocabulary) add(literal string) {
	for _, piece := range hole.Split(literal, -1) {
		switch piece = strings.Join(strings.Fields(apart.Replace(piece)), " "); {
		case strings.Contains(piece, " "):
			v.phrases = append(v.phrases, piece)
		default:
			v.words[piece] = true
		}
	}
}

// strange returns words of a line that no command prints: a word that is in no phrase of the line
// and is no text of its own, or five texts of one word in a row. values are the example's names.
func (v vocabulary) strange(line string, values map[string]bool) string {
	line = " " + strings.Join(strings.Fields(apart.Replace(line)), " ") + " "
	for _, phrase := range v.phrases {
		line = strings.ReplaceAll(line, " "+phrase+" ", " \x00 ")
	}
	var run []string
	for _, word := range strings.Fields(line) {
		if !small.MatchString(word) || values[word] {
			run = nil
			continue
		}
		if run = append(run, word); !v.words[word] || len(run) > 4 {
			return strings.Join(run, " ")
		}
	}
	return ""
}

// vocabularyOf reads the strings of the command line and of the packages that it prints from.
func vocabularyOf(t *testing.T) vocabulary {
	t.Helper()
	v := vocabulary{words: map[string]bool{}}
	for _, pattern := range []string{"cmd/pawl/internal/*/*.go", "internal/operator/*.go", "internal/text/*.go", "internal/verdict/*.go", "ops/*.go", "migrate/*.go", "doctor/*.go", "*.go", "schema/api/*.sql"} {
		names, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Ext(name) == ".sql" {
				for _, m := range quoteds.FindAllStringSubmatch(string(text), -1) {
					v.add(strings.ReplaceAll(m[1], "''", "'"))
				}
				continue
			}
			for _, literal := range said(text) {
				v.add(literal)
			}
		}
	}
	slices.SortFunc(v.phrases, func(a, b string) int { return len(b) - len(a) })
	return v
}

// printedOn returns the lines that pages say a command prints, without tables, sheets and JSON, and
// the words of the commands.
func printedOn(page string) (lines []string, values map[string]bool) {
	values = map[string]bool{"ann": true}
	heading := regexp.MustCompile(`^[A-Z][A-Z ]+(?:  +[A-Z][A-Z ]*)+$`)
	for _, m := range fenced.FindAllStringSubmatch(page, -1) {
		of, table := false, false
		for line := range strings.Lines(m[2]) {
			line = strings.TrimRight(line, "\n")
			switch command, is := strings.CutPrefix(line, "$ "); {
			case is:
				of, table = strings.HasPrefix(command, "pawl "), false
				for _, word := range strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" '\"", r) }) {
					values[word] = true
				}
			case heading.MatchString(line):
				table = true
			case of && !table && line != "" && !strings.Contains(" "+line, "  ") && !strings.HasPrefix(line, "{"):
				lines = append(lines, line)
			}
		}
	}
	return lines, values
}

// The lines that pages show as the output of a command consist of the texts of the program.
func TestPages_ShowWhatCommandsPrint(t *testing.T) {
	t.Parallel()
	v, found := vocabularyOf(t), 0
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".md" || d.Name() == "CHANGELOG.md" {
			return err
		}
		text, err := os.ReadFile(name)
		lines, values := printedOn(string(text))
		found += len(lines)
		for _, line := range lines {
			if words := v.strange(line, values); words != "" {
				t.Errorf("%s: no command prints %q: %s", name, words, line)
			}
		}
		return err
	})
	if err != nil || found < 25 {
		t.Errorf("%d lines: %v", found, err)
	}
}

// A line that the program does not print is found, whether a word is wrong or a phrase is.
func TestPages_PlantedOutputIsFound(t *testing.T) {
	t.Parallel()
	v := vocabularyOf(t)
	for line, found := range map[string]bool{
		`would retry 10 dead letters of queue orders whose last error contains "stock"`: false,
		`would retry 10 dead letters of queue orders whose last error holds "stock"`:    true,
		`would retry 10 failures of queue orders`:                                       true,
		`job 1 retried (was dead_letter)`:                                               false,
		`pawl: dlq.retry: job 1 is locked by an open transaction`:                       false,
		`pawl: dlq.retry: job 1 is locked by another transaction`:                       true,
	} {
		lines, values := printedOn("```\n$ pawl dlq retry --queue orders --error 'stock'\n" + line + "\n```\n")
		if len(lines) != 1 || (v.strange(lines[0], values) != "") != found {
			t.Errorf("%q: %q", lines, v.strange(line, values))
		}
	}
}
