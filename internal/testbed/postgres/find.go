package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// oldest is the first major version whose initdb and server accept our command lines.
const oldest = 14

// folders are the directories of packages that are not on PATH.
var folders = []string{
	"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
	"/usr/lib/postgresql*/bin",  // SUSE
	"/usr/pgsql-*/bin",          // PostgreSQL's own rpm packages
	"/usr/libexec/postgresql*",  // Alpine
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/opt/local/lib/postgresql*/bin", // MacPorts
	"/usr/local/pgsql/bin",
}

// An install is a set of working binaries and the identity that they run as.
type install struct {
	bin     string
	who     identity
	version version
}

// A version is the output of postgres --version, such as 15.18.
type version struct {
	major int
	text  string
}

var versionText = regexp.MustCompile(`PostgreSQL\) ((\d+)\S*)`)

func parseVersion(out string) (version, error) {
	m := versionText.FindStringSubmatch(out)
	if m == nil {
		return version{}, fmt.Errorf("postgres: cannot read a version from %q", oneLine(out))
	}
	major, err := strconv.Atoi(m[2])
	return version{major: major, text: m[1]}, err
}

// find chooses the binaries. A directory that the caller names must work. Others are skipped if
// they do not.
func find(ctx context.Context, o Options) (install, error) {
	named, by := o.BinDir, "BinDir"
	if named == "" {
		named, by = o.tune.env("PAWL_PG_BIN"), "PAWL_PG_BIN"
	}
	if named != "" {
		found, err := try(ctx, named, o)
		if errors.Is(err, errIdentity) {
			return install{}, err
		}
		if err != nil {
			return install{}, fmt.Errorf("%w (%s must name the directory that holds initdb and postgres)", err, by)
		}
		return found, nil
	}
	var passed []error
	for _, bin := range o.tune.search() {
		found, err := try(ctx, bin, o)
		if err == nil {
			return found, nil
		}
		if errors.Is(err, errIdentity) || ctx.Err() != nil {
			return install{}, err
		}
		passed = append(passed, err)
	}
	bin, err := downloaded(ctx, o)
	if err == nil {
		var found install
		if found, err = try(ctx, bin, o); err == nil {
			return found, nil
		}
	}
	return install{}, &notFoundError{passed: passed, fetch: err}
}

// try checks one directory.
func try(ctx context.Context, bin string, o Options) (install, error) {
	if !holdsServer(bin) {
		return install{}, fmt.Errorf("postgres: %s does not hold initdb and postgres", bin)
	}
	who, v, err := identify(ctx, bin, o.DataDir)
	if err != nil {
		return install{}, err
	}
	if v.major < oldest {
		return install{}, fmt.Errorf("postgres: %s is version %s, %d or later is needed", bin, v.text, oldest)
	}
	if made := clusterMajor(o.DataDir); made != 0 && made != v.major {
		return install{}, fmt.Errorf("postgres: %s was made by PostgreSQL %d, %s is version %s", o.DataDir, made, bin, v.text)
	}
	return install{bin: bin, who: who, version: v}, nil
}

// search returns the local directories that contain a server, best first, with links resolved.
func search() []string {
	var list []string
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			list = append(list, filepath.Dir(path))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		list = append(list, strings.TrimSpace(string(out)))
	}
	list = append(list, newestFirst(folders)...)

	var found []string
	for _, dir := range list {
		dir, err := filepath.EvalSymlinks(dir)
		if err == nil && !slices.Contains(found, dir) && holdsServer(dir) {
			found = append(found, dir)
		}
	}
	return found
}

// newestFirst expands the patterns and sorts the results by the major version in the path.
func newestFirst(patterns []string) (found []string) {
	for _, pattern := range patterns {
		matches, _ := filepath.Glob(pattern)
		found = append(found, matches...)
	}
	number := regexp.MustCompile(`\d+`)
	major := func(path string) int {
		n, _ := strconv.Atoi(number.FindString(path))
		return n
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(major(b), major(a)) })
	return found
}

func holdsServer(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.IsDir() {
			return false
		}
	}
	return true
}

// ErrNotFound means that no usable PostgreSQL was found and none could be downloaded. The error
// text contains the command that installs it on this system.
var ErrNotFound = errors.New("postgres: no PostgreSQL server found")

type notFoundError struct {
	passed []error // installations that were found and do not work
	fetch  error
}

func (e *notFoundError) Error() string {
	text := ErrNotFound.Error()
	for _, err := range e.passed {
		text += ", " + strings.TrimPrefix(err.Error(), "postgres: ")
	}
	if e.fetch != nil {
		text += ", and none fetched: " + strings.TrimPrefix(e.fetch.Error(), "postgres: ")
	}
	return text + " (" + installLine() + ", or set PAWL_PG_BIN to the directory that holds initdb and postgres)"
}

func (e *notFoundError) Is(target error) bool { return target == ErrNotFound }
func (e *notFoundError) Unwrap() []error      { return append(slices.Clone(e.passed), e.fetch) }
