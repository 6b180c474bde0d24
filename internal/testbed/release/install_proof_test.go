//go:build proof

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The archive, unpacked into an empty directory, is all that pawl needs of a system.
func TestInstall_FromAnArchive(t *testing.T) {
	root := t.TempDir()
	do(t, ours, root, "tar", "-xzf", archiveOf(t, platform{"linux", runtime.GOARCH}), "-C", root, "pawl")
	works(t, root, "/pawl", candidate)
}

// dpkg installs the package into an empty root, finds the files as they were packed, and removes
// all of them. A release candidate is older than its release.
func TestInstall_DebianPackage(t *testing.T) {
	root := t.TempDir()
	dpkg := program(t, "dpkg", "dpkg")
	must(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg/updates"), 0o755))
	must(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg/info"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644))
	do(t, ours, root, dpkg, "--root="+root, "--install", packageOf(t, runtime.GOARCH))
	if altered := do(t, ours, root, dpkg, "--root="+root, "--verify", "pawl"); altered != "" {
		t.Errorf("dpkg finds other files than were packed:\n%s", altered)
	}
	works(t, root, "/usr/bin/pawl", candidate)
	// The package is found where Debian's bash looks, without a source command.
	completes(t, `XDG_DATA_DIRS="$ROOT/usr/share"; _completion_loader pawl`, root, "/usr/bin/pawl")
	for _, name := range []string{"zsh/vendor-completions/_pawl", "fish/vendor_completions.d/pawl.fish", "doc/pawl/copyright"} {
		if text, err := os.ReadFile(filepath.Join(root, "usr/share", name)); err != nil || !bytes.Contains(text, []byte("pawl")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	version := strings.TrimSpace(do(t, ours, root, dpkg, "-f", packageOf(t, runtime.GOARCH), "Version"))
	do(t, ours, root, dpkg, "--compare-versions", version, "lt", strings.TrimSuffix(candidate[1:], "-rc.1"))
	do(t, ours, root, dpkg, "--compare-versions", version, "lt", "0.1.0~rc.2")
	do(t, ours, root, dpkg, "--root="+root, "--purge", "pawl")
	if left, err := os.ReadDir(filepath.Join(root, "usr")); err == nil {
		t.Errorf("a purge leaves %v", left)
	}
}

// The package for the other architecture has the binary of its archive.
func TestInstall_DebianPackagesOfBothArchitectures(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		root := t.TempDir()
		do(t, ours, root, program(t, "dpkg-deb", "dpkg"), "-x", packageOf(t, arch), root)
		binary, err := os.ReadFile(filepath.Join(root, "usr/bin/pawl"))
		must(t, err)
		if !bytes.Equal(binary, unpacked(t, platform{"linux", arch})["pawl"]) {
			t.Errorf("the package for %s has another binary than the archive", arch)
		}
		if is := strings.TrimSpace(do(t, ours, root, "dpkg-deb", "-f", packageOf(t, arch), "Architecture")); is != arch {
			t.Errorf("the package for %s is for %s", arch, is)
		}
	}
}

// works checks an installed pawl. In a root with nothing but what was installed it prints its
// version and its completion, which bash takes. It plays the demo.
func works(t *testing.T, root, pawl, version string) {
	t.Helper()
	if said := inside(t, root, 65534, nil, pawl, "version"); !strings.HasPrefix(said, "pawl "+version+", schema ") {
		t.Errorf("pawl version says %q", said)
	}
	script := filepath.Join(t.TempDir(), "completion")
	must(t, os.WriteFile(script, []byte(inside(t, root, 65534, nil, pawl, "completion", "bash")), 0o644))
	completes(t, "source "+script, root, pawl)
	plays(t, filepath.Join(root, pawl))
}

// plays runs the demo in an empty directory.
func plays(t *testing.T, pawl string) {
	t.Helper()
	demo := alone(t, pawl, "demo", "--messages", "300", "--kills", "3", "--json")
	out, err := demo.Output()
	var report struct{ Intents, Effects, Kills, Doubled, Lost int }
	if err == nil {
		err = json.Unmarshal(out, &report)
	}
	if err != nil || report.Intents != 300 || report.Effects != 300 || report.Kills != 3 || report.Doubled+report.Lost != 0 {
		t.Errorf("pawl demo: %v, %+v\n%s\n%s", err, report, out, demo.Stderr)
	}
}

// inside runs a program in a root of its own, as a user without rights, and returns its output.
func inside(t *testing.T, root string, user uint32, env []string, name string, args ...string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("run it as root: it starts a program in a root of its own")
	}
	must(t, os.Chmod(root, 0o755))
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = "/", env
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s in %s: %v\n%s", name, strings.Join(args, " "), root, err, out)
	}
	return string(out)
}

// completes loads the completion of pawl into a bash, and completes a line.
func completes(t *testing.T, load, root, pawl string) {
	t.Helper()
	const library = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(library); err != nil {
		t.Fatalf("%v: on Debian, run apt-get install bash-completion", err)
	}
	shell := exec.Command("bash", "--norc", "-c", "source "+library+"\n"+load+`
complete -p pawl
COMP_LINE='pawl migrate stat' COMP_POINT=17 COMP_WORDS=(pawl migrate stat) COMP_CWORD=2
__start_pawl pawl stat migrate 2>/dev/null
echo "completed: ${COMPREPLY[*]}"`)
	shell.Env = []string{"ROOT=" + root, "PATH=" + filepath.Dir(filepath.Join(root, pawl)) + ":/usr/bin:/bin", "HOME=" + t.TempDir()}
	out, err := shell.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "-F __start_pawl pawl\n") || !strings.HasSuffix(string(out), "completed: status\n") {
		t.Errorf("bash completes `pawl migrate stat`: %v\n%s", err, out)
	}
}

// alone prepares a run of pawl in an empty directory, with nothing of the tester's environment but
// where PostgreSQL is.
func alone(t *testing.T, pawl string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(pawl, args...)
	cmd.Dir, cmd.Env = t.TempDir(), []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "PAWL_PG_NO_FETCH=1", "PAWL_PG_BIN=" + os.Getenv("PAWL_PG_BIN")}
	cmd.Stderr = &bytes.Buffer{}
	return cmd
}

// The crash lab needs nothing but the binary: its page, its dashboard and its workers are in it.
func TestInstall_PlaysTheCrashLab(t *testing.T) {
	root := t.TempDir()
	do(t, ours, root, "tar", "-xzf", archiveOf(t, platform{"linux", runtime.GOARCH}), "-C", root, "pawl")
	lab := alone(t, filepath.Join(root, "pawl"), "demo", "--watch", "--workers", "2", "--listen", "127.0.0.1:0", "--json")
	pipe, err := lab.StdoutPipe()
	must(t, err)
	must(t, lab.Start())
	t.Cleanup(func() { _ = lab.Process.Kill() })
	said := bufio.NewReader(pipe)
	var running struct{ URL, Login string }
	line, _ := said.ReadBytes('\n')
	if err := json.Unmarshal(line, &running); err != nil {
		t.Fatalf("%v: %q\n%s", err, line, lab.Stderr)
	}
	jar, err := cookiejar.New(nil)
	must(t, err)
	browser := &http.Client{Jar: jar}
	get := func(address string) []byte {
		t.Helper()
		answer, err := browser.Get(address)
		must(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		must(t, err)
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s\n%s", address, answer.Status, text)
		}
		return text
	}
	if page := get(running.Login); !bytes.Contains(page, []byte("Crash lab")) {
		t.Errorf("the page of the lab is\n%s", page)
	}
	if page := get(running.URL + "dashboard/"); !bytes.Contains(page, []byte("Overview")) {
		t.Errorf("the page of the dashboard is\n%s", page)
	}
	var state struct{ Camps []struct{ Effects int } }
	for deadline := time.Now().Add(3 * time.Minute); len(state.Camps) != 2 || slices.ContainsFunc(state.Camps, func(c struct{ Effects int }) bool { return c.Effects < 10 }); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after three minutes: %+v", state)
		}
		must(t, json.Unmarshal(get(running.URL+"state"), &state))
	}
	must(t, lab.Process.Signal(os.Interrupt))
	var report struct {
		Sent int
		Pawl struct{ Effects, Doubled, Lost int }
	}
	text, err := io.ReadAll(said)
	must(t, err)
	if err := json.Unmarshal(text, &report); err != nil || report.Sent == 0 || report.Pawl.Effects != report.Sent || report.Pawl.Doubled+report.Pawl.Lost != 0 {
		t.Errorf("%v: %s\n%s", err, text, lab.Stderr)
	}
	if err := lab.Wait(); err != nil {
		t.Errorf("%v\n%s", err, lab.Stderr)
	}
}
