//go:build proof

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// candidate is the version of the files that these tests build.
const candidate = "v0.1.0-rc.1"

// built is the directory for the files of the working tree, and made fills it once for all tests.
var (
	built string
	made  = sync.OnceValue(func() error { return working.build(candidate, built) })
)

// files returns the directory with the files of the working tree.
func files(t *testing.T) string {
	t.Helper()
	if *released != "" {
		t.Skip("it is about the working tree")
	}
	must(t, made())
	return built
}

// SHA256SUMS has every file, and coreutils' program reads it.
func TestBuild_WritesChecksumsOfAllFiles(t *testing.T) {
	dir := files(t)
	out := do(t, ours, dir, "sha256sum", "--strict", "-c", "SHA256SUMS")
	all, err := os.ReadDir(dir)
	must(t, err)
	if len(all) != 1+len(platforms)+2 || strings.Count(out, ": OK\n") != len(all)-1 {
		t.Errorf("of %d files, sha256sum found\n%s", len(all), out)
	}
	if err := working.build(candidate, dir); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a build into the same directory ended with %v", err)
	}
}

// Each binary is for its platform, has the version, and loads nothing of the system that not every
// system has.
func TestBuild_BinariesAreStatic(t *testing.T) {
	machines := map[string]any{"linux_amd64": elf.EM_X86_64, "linux_arm64": elf.EM_AARCH64, "darwin_amd64": macho.CpuAmd64, "darwin_arm64": macho.CpuArm64}
	for _, p := range platforms {
		binary := bytes.NewReader(unpacked(t, p)["pawl"])
		info, err := buildinfo.Read(binary)
		must(t, err)
		if info.Main.Path != pathOf("cmd/pawl") || info.Main.Version != candidate {
			t.Errorf("%s is %s %s", p, info.Main.Path, info.Main.Version)
		}
		var machine any
		var needs []string
		if p.os == "linux" {
			f, err := elf.NewFile(binary)
			must(t, err)
			machine = f.Machine
			needs, err = f.ImportedLibraries()
			must(t, err)
			if slices.ContainsFunc(f.Progs, func(s *elf.Prog) bool { return s.Type == elf.PT_INTERP }) {
				needs = append(needs, "an interpreter")
			}
		} else {
			f, err := macho.NewFile(binary)
			must(t, err)
			machine = f.Cpu
			needs, err = f.ImportedLibraries()
			must(t, err)
			needs = slices.DeleteFunc(needs, func(name string) bool {
				return strings.HasPrefix(name, "/usr/lib/") || strings.HasPrefix(name, "/System/")
			})
		}
		if machine != machines[p.String()] || len(needs) > 0 {
			t.Errorf("%s is for %v and needs %v", p, machine, needs)
		}
	}
}

// The licence of Pawl, of Go and of every module in the binary comes with it.
func TestBuild_HasTheLicencesOfWhatIsInIt(t *testing.T) {
	archive := unpacked(t, platforms[0])
	info, err := buildinfo.Read(bytes.NewReader(archive["pawl"]))
	must(t, err)
	want := []string{core + ": LICENSE ", "Go: LICENSE "}
	for _, m := range info.Deps {
		if !isPublished(m.Path) {
			want = append(want, m.Path+" "+m.Version+": ")
		}
	}
	for _, of := range want {
		if !bytes.Contains(archive["LICENSES"], []byte("---- "+of)) {
			t.Errorf("LICENSES has none of %s", of)
		}
	}
}

// Another commit with the same files, in another directory, under other settings of the go command,
// gives the same octets.
func TestBuild_RepeatsItself(t *testing.T) {
	dir := files(t)
	c, err := working.copyTo(t.TempDir())
	must(t, err)
	mustGit(t, c, "init", "-q")
	mustGit(t, c, "add", "-f", ".")
	mustGit(t, c, "-c", "user.name=another", "-c", "user.email=another@localhost", "-c", "commit.gpgsign=false", "commit", "-qm", "another commit")
	for name, value := range map[string]string{"GOFLAGS": "-ldflags=-s -tags=other", "GOAMD64": "v3", "GOARM64": "v9.0", "CGO_ENABLED": "1", "GOBIN": t.TempDir()} {
		t.Setenv(name, value)
	}
	again := t.TempDir()
	must(t, c.build(candidate, again))
	sums := func(dir string) string {
		text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		must(t, err)
		return string(text)
	}
	if sums(dir) != sums(again) {
		t.Errorf("two builds of the same files differ:\n%s\n%s", sums(dir), sums(again))
	}
}

// RELEASING.md's command for users builds the binary of the archive again.
func TestBuild_IsWhatGoInstallGives(t *testing.T) {
	binary := unpacked(t, platform{"linux", "arm64"})["pawl"]
	r := publishedAt(t, working, candidate)
	r.env = append(r.env, "version="+candidate)
	commands := commandsContaining(t, "../../../RELEASING.md", "go install -trimpath")
	if len(commands) != 1 {
		t.Fatalf("RELEASING.md has the commands %q", commands)
	}
	do(t, r, r.dir, "sh", "-ec", commands[0])
	installed, err := os.ReadFile(filepath.Join(r.dir, "go/bin/linux_arm64/pawl"))
	must(t, err)
	if !bytes.Equal(installed, binary) {
		t.Errorf("go install gives another binary, of %d octets and not %d", len(installed), len(binary))
	}
}

// publishedAt publishes a tree at a version in a proxy of its own, with a module cache of its own.
func publishedAt(t *testing.T, of *tree, version string) *rehearsal {
	t.Helper()
	r := &rehearsal{dir: t.TempDir(), version: version}
	must(t, r.release(of))
	path := filepath.Join(r.dir, "go")
	r.env = append(r.env, "GOPATH="+path, "GOMODCACHE="+filepath.Join(path, "mod"), "GOFLAGS=-modcacherw -trimpath", "GOBIN=")
	return r
}

// commandsContaining returns the indented lines of a page that contain a text.
func commandsContaining(t *testing.T, page, text string) (commands []string) {
	t.Helper()
	all, err := os.ReadFile(page)
	must(t, err)
	for line := range strings.Lines(string(all)) {
		if strings.HasPrefix(line, "   ") && strings.Contains(line, text) {
			commands = append(commands, strings.TrimSpace(line))
		}
	}
	return commands
}

// The files have the day of the release, or the time that the builder names.
func TestBuild_DateOfTheFiles(t *testing.T) {
	c := planted(t, "CHANGELOG.md", "\n## v0.1.0-rc.2 – 2027-01-31\n")
	for _, try := range []struct {
		version, epoch string
		want           time.Time
	}{
		{"v0.1.0-rc.2", "", time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)},
		{"v0.1.0-rc.2", "1800000000", time.Unix(1800000000, 0)},
		{"v0.1.0-rc.3", "", time.Unix(0, 0)},
	} {
		t.Setenv("SOURCE_DATE_EPOCH", try.epoch)
		if date, err := c.date(try.version); err != nil || !date.Equal(try.want) {
			t.Errorf("%+v: %v, %v", try, date, err)
		}
	}
}

// unpacked returns the files of an archive.
func unpacked(t *testing.T, p platform) map[string][]byte {
	t.Helper()
	f, err := os.Open(archiveOf(t, p))
	must(t, err)
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	must(t, err)
	all := map[string][]byte{}
	for packed := tar.NewReader(zipped); ; {
		h, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		all[h.Name], err = io.ReadAll(packed)
		must(t, err)
	}
}

func archiveOf(t *testing.T, p platform) string {
	return filepath.Join(files(t), fmt.Sprintf("pawl_%s_%s.tar.gz", candidate[1:], p))
}

func packageOf(t *testing.T, arch string) string {
	return filepath.Join(files(t), fmt.Sprintf("pawl_%s_%s.deb", candidate[1:], arch))
}

// program returns the path of a program that a test needs.
func program(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v: on Debian, run apt-get install %s", err, debian)
	}
	return path
}
