// Package docs tests that the documents agree with the code.
//
//	links_test.go      relative links and headings exist
//	names_test.go      files, packages, identifiers and other names exist
//	world_test.go      the names that exist
//	planted_test.go    wrong names that names_test.go must find
//	commands_test.go   the files that blocks start are executable
//	code_test.go       the Go code of pages compiles where it is pasted
//	sql_test.go        PostgreSQL can plan the queries of pages
//	examples_test.go   the examples of the SQL reference print what is shown
//	events_test.go     each event is listed with the steps that report it
//	tutorials_proof_test.go
//	                   the commands of tutorials print what is shown
//	reference_test.go  functions, options, events, fault points, fields and traps are listed
//	providers_test.go  the guide's table of providers agrees with step.Providers
package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

// files returns the files below the root whose names end in suffix, relative to the root.
func files(t *testing.T, suffix string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(name, suffix) {
			below, err := filepath.Rel(root, path)
			found = append(found, filepath.ToSlash(below))
			return err
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("no %s files below %s: %v", suffix, root, err)
	}
	return found
}

// read returns the text of a file without what the tests printed.
func read(t *testing.T, below string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, below))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), printedBegin) {
		return string(text) // the pattern is slow, and few files have the mark
	}
	return printed.ReplaceAllString(string(text), "")
}

const printedBegin = "<!-- printed by the tests -->"

// printed matches what a page quotes from runs of the tests. It has other words than a page, and it
// names tests that may have been renamed since.
var printed = regexp.MustCompile(`(?ms)^` + printedBegin + `$.*?^<!-- end -->$`)

// The checks read a page without what the tests printed, and with all else.
func TestRead_LeavesOutWhatTestsPrinted(t *testing.T) {
	t.Parallel()
	const page = "docs/proof.md"
	whole, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(whole), printedBegin)
	quotes, after, ends := strings.Cut(rest, "<!-- end -->")
	if !begins || !ends || !strings.Contains(quotes, "0 lost, 0 doubled") || after == "" {
		t.Fatalf("%s quotes nothing: %q", page, quotes)
	}
	if got := read(t, page); got != before+after {
		t.Errorf("got %s", got)
	}
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?)\s*$`)
)

// Each relative link names an existing file, and each anchor an existing heading.
func TestLinks_Resolve(t *testing.T) {
	t.Parallel()
	links := 0
	headings := map[string]map[string]bool{}
	for _, page := range files(t, ".md") {
		prose := code.ReplaceAllString(fence.ReplaceAllString(read(t, page), ""), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], ":") {
				continue // an absolute link
			}
			links++
			target, anchor, _ := strings.Cut(m[1], "#")
			at := page
			if target != "" {
				at = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(root, at)); err != nil {
				t.Errorf("%s: link %s leads nowhere", page, m[1])
				continue
			}
			if anchor == "" {
				continue
			}
			if headings[at] == nil {
				headings[at] = anchors(read(t, at))
			}
			if !headings[at][anchor] {
				t.Errorf("%s: link %s: no such heading in %s", page, m[1], at)
			}
		}
	}
	if links < 30 {
		t.Errorf("found only %d links: is the pattern still right?", links)
	}
}

// Each page is listed in the list of pages or in that of its folder.
func TestPages_AreListed(t *testing.T) {
	t.Parallel()
	linked := map[string]bool{"docs/README.md": true}
	for _, list := range []string{"docs/README.md", "docs/operating/README.md", "docs/decisions/README.md"} {
		for _, m := range link.FindAllStringSubmatch(read(t, list), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			linked[filepath.ToSlash(filepath.Join(filepath.Dir(list), target))] = true
		}
	}
	for _, page := range files(t, ".md") {
		if strings.HasPrefix(page, "docs/") && !linked[page] {
			t.Errorf("no list of pages has %s", page)
		}
	}
}

// anchors returns the anchors of a page's headings, as GitHub derives them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		all[slug] = true
	}
	return all
}

// The pages name the PostgreSQL versions that proof/versions tests.
func TestVersions_AreThoseThatThePagesName(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`(?m)^for version in (.*); do$`).FindStringSubmatch(read(t, "proof/versions"))
	if line == nil {
		t.Fatal("proof/versions lists no versions")
	}
	var majors []string
	for version := range strings.FieldsSeq(line[1]) {
		major, _, _ := strings.Cut(version, ".")
		majors = append(majors, major)
	}
	last := len(majors) - 1
	listed := strings.Join(majors[:last], ", ") + " and " + majors[last]
	for page, text := range map[string]string{
		"README.md":                    "tested with %s",
		"docs/operating/upgrade.md":    "PostgreSQL %s are tested",
		"docs/operating/production.md": "PostgreSQL %s | ",
	} {
		if want := fmt.Sprintf(text, listed); !strings.Contains(read(t, page), want) {
			t.Errorf("%s does not say %q", page, want)
		}
	}
	if first := "version " + majors[0] + " or later"; !strings.Contains(read(t, "internal/testbed/postgres/install.go"), first) {
		t.Errorf("internal/testbed/postgres/install.go does not say %q", first)
	}
}
