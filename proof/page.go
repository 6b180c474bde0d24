package main

import (
	"fmt"
	"os"
	"strings"
)

const pageFile = "docs/proof.md"

// pageBegins and pageEnds enclose the rendered part of docs/proof.md. From pagePrints on it quotes
// tests as they were in those runs. The checks of pages leave that out: the quotes may name a test
// that has another name by now.
const pageBegins, pagePrints, pageEnds = "<!-- rendered by go run ./proof -->\n", "<!-- printed by the tests -->\n", "<!-- end -->\n"

func writePage(results []result) error {
	text, err := os.ReadFile(pageFile)
	if err != nil {
		return err
	}
	page, err := render(string(text), results)
	if err != nil {
		return err
	}
	return os.WriteFile(pageFile, []byte(page), 0o644)
}

// render returns the page with the table of the stages and their counts rendered from the results.
func render(page string, results []result) (string, error) {
	before, rest, begins := strings.Cut(page, pageBegins)
	_, after, ends := strings.Cut(rest, pageEnds)
	if !begins || !ends {
		return "", fmt.Errorf("%s has no lines %q and %q", pageFile, strings.TrimSpace(pageBegins), strings.TrimSpace(pageEnds))
	}
	var t strings.Builder
	t.WriteString("| stage | what a pass shows | last pass | seconds | load | longest stall | since then |\n|---|---|---|--:|--:|--:|---|\n")
	for _, s := range stages {
		last, ok := lastPass(results, s.name)
		if !ok {
			fmt.Fprintf(&t, "| `%s` | %s | never | | | | %s |\n", s.name, s.shows, later(results, s.name))
			continue
		}
		fmt.Fprintf(&t, "| `%s` | %s | %s, %s | %d | %s | %d ms | %s |\n", s.name, s.shows, last.Began.Format("2006-01-02"), last.Commit,
			last.Seconds, last.Load, last.StallMS, later(results, s.name))
	}
	t.WriteString("\n## Counted\n\nThese are counts of the last passes above, and the tests that failed since then.\n\n" + pagePrints + "\n")
	for _, s := range stages {
		last, _ := lastPass(results, s.name)
		for _, line := range last.Counted {
			fmt.Fprintf(&t, "- `%s`: %s\n", s.name, line)
		}
		for _, r := range failedSince(results, s.name) {
			fmt.Fprintf(&t, "- `%s` failed at %s: %s\n", s.name, r.Commit, strings.Join(r.Failures, ", "))
		}
	}
	return before + pageBegins + "\n" + t.String() + "\n" + pageEnds + after, nil
}

// later says when a stage failed after its last pass.
func later(results []result, stage string) string {
	var failed []string
	for _, r := range failedSince(results, stage) {
		failed = append(failed, fmt.Sprintf("failed on %s at %s", r.Began.Format("2006-01-02"), r.Commit))
	}
	return strings.Join(failed, "; ")
}

// failedSince returns the runs of a stage that failed after its last pass.
func failedSince(results []result, stage string) (failed []result) {
	for _, r := range results {
		switch {
		case r.Stage != stage:
		case len(r.Failures) == 0:
			failed = nil
		default:
			failed = append(failed, r)
		}
	}
	return failed
}
