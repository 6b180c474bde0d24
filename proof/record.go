package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const resultsFile = "proof/results.jsonl"

// A result is one run of a stage and a line of proof/results.jsonl.
type result struct {
	Stage    string    `json:"stage"`
	Began    time.Time `json:"began"`
	Seconds  int       `json:"seconds"`
	Commit   string    `json:"commit"` // followed by + if the tree had uncommitted changes
	Inputs   string    `json:"inputs"` // hash of the files that the stage depends on
	Load     string    `json:"load"`   // load average over five minutes
	StallMS  int64     `json:"stall_ms"`
	Seeds    []string  `json:"seeds,omitempty"`
	Counted  []string  `json:"counted,omitempty"` // what the tests counted, one line for each run
	Failures []string  `json:"failures,omitempty"`
}

func (r result) outcome() string {
	if len(r.Failures) == 0 {
		return "passed"
	}
	return fmt.Sprintf("FAILED (%s)", strings.Join(r.Failures, ", "))
}

func readResults() (all []result, err error) {
	text, err := os.ReadFile(resultsFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for n, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var r result
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", resultsFile, n+1, err)
		}
		all = append(all, r)
	}
	return all, nil
}

func addResult(all []result, r result) ([]result, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(resultsFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(append(line, '\n'))
	return append(all, r), errors.Join(err, f.Close())
}

func lastPass(all []result, stage string) (result, bool) {
	for _, r := range slices.Backward(all) {
		if r.Stage == stage && len(r.Failures) == 0 {
			return r, true
		}
	}
	return result{}, false
}

// A tree is the checkout that is tested.
type tree struct{ commit string }

func openTree(ctx context.Context) (tree, error) {
	top, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return tree{}, err
	}
	if err := os.Chdir(top); err != nil {
		return tree{}, err
	}
	commit, err := git(ctx, "rev-parse", "--short=10", "HEAD")
	if err != nil {
		return tree{}, err
	}
	changed, err := git(ctx, "status", "--porcelain", "--", ":!"+resultsFile, ":!"+pageFile)
	if changed != "" {
		commit += "+"
	}
	return tree{commit}, err
}

// hash returns the hash of the files on disk that match the sets of pathspecs. A file that one set
// excludes counts if another set includes it.
func (tree) hash(sets [][]string) (string, error) {
	var names []string
	for _, pathspecs := range sets {
		list, err := git(context.Background(), append([]string{"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, pathspecs...)...)
		if err != nil {
			return "", err
		}
		names = append(names, strings.Split(strings.Trim(list, "\x00"), "\x00")...)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, name := range slices.Compact(names) {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, but not committed
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)[:10]), nil
}

// since returns how many commits the tree has since a commit.
func (tree) since(ctx context.Context, commit string) string {
	n, err := git(ctx, "rev-list", "--count", strings.TrimSuffix(commit, "+")+"..HEAD")
	if err != nil {
		return "on a commit that is not here"
	}
	return "commits since then: " + n
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %s", args[0], bytes.TrimSpace(exit.Stderr))
	}
	return strings.TrimRight(string(out), "\n"), err
}
