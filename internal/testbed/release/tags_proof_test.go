//go:build proof

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The go command computes from the tags the hashes that set wrote into go.sum. Here it reads the
// tags from a local repository, as it will from the public one.
func TestTags_HaveTheHashesThatWereSet(t *testing.T) {
	if *released != "" {
		t.Skip("it makes tags of its own")
	}
	repository := repositoryOf(t, ours.version)
	for _, dir := range published {
		mustGit(t, repository, "tag", tagOf(dir, ours.version))
	}
	r := *ours
	r.env = append(slices.Clone(r.env), "GOPROXY=direct", "GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw", "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url.file://"+filepath.ToSlash(repository.root)+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+core)
	for _, dir := range published {
		var got struct{ Sum, GoModSum string }
		must(t, json.Unmarshal([]byte(do(t, &r, t.TempDir(), "go", "mod", "download", "-json", pathOf(dir)+"@"+r.version)), &got))
		want, err := repository.sums(dir, r.version)
		must(t, err)
		if name := pathOf(dir) + " " + r.version; want != [2]string{name + " " + got.Sum, name + "/go.mod " + got.GoModSum} {
			t.Errorf("the tag %s has %s and %s, set computed\n%s", tagOf(dir, r.version), got.Sum, got.GoModSum, strings.Join(want[:], "\n"))
		}
	}
}

// A tree can be tagged once set has written the version and all is committed. After a change of the
// core it cannot, because the hashes belong to another core.
func TestCheck_RefusesAnythingButACommittedRelease(t *testing.T) {
	const version = "v0.1.0"
	c := repositoryOf(t, version)
	wants := func(want string) {
		t.Helper()
		err := c.check(version)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("check says %v, not %q", err, want)
		}
	}
	add := func(name, text string) {
		t.Helper()
		old, err := os.ReadFile(filepath.Join(c.root, name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(c.root, name), append(old, text...), 0o644))
	}
	wants("CHANGELOG.md has no section")
	add("CHANGELOG.md", "\n## v0.1.0 – 2027-01-01\n")
	wants("differs from HEAD")
	mustGit(t, c, "commit", "-qam", "changelog")
	wants("schedule/cron/go.sum is not what") // CHANGELOG.md is a file of the core
	must(t, c.set(version))
	mustGit(t, c, "commit", "-qam", "version")
	wants("")
	mustGit(t, c, "tag", "observe/"+version)
	wants("the tag observe/v0.1.0 exists")
}

// repositoryOf commits a copy of the working tree, with a version set, to a new repository.
func repositoryOf(t *testing.T, version string) *tree {
	t.Helper()
	c, err := working.copyTo(t.TempDir())
	must(t, err)
	must(t, c.set(version))
	mustGit(t, c, "init", "-q")
	mustGit(t, c, "config", "user.name", "release")
	mustGit(t, c, "config", "user.email", "release@localhost")
	mustGit(t, c, "config", "commit.gpgsign", "false")
	mustGit(t, c, "add", "-f", ".")
	mustGit(t, c, "commit", "-qm", "release")
	return c
}

func mustGit(t *testing.T, in *tree, args ...string) {
	t.Helper()
	_, err := git(in.root, args...)
	must(t, err)
}
