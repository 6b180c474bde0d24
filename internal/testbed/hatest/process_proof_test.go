//go:build proof

package hatest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
)

// clearUp kills all processes whose command line contains a directory once its standard input ends,
// and removes the directory. It reads the directory from the first line. The shell survives every
// death of this process. Patroni goes first, because it would restart its server. A server gets
// SIGQUIT, so that it frees its shared memory.
const clearUp = `
read -r dir || exit 0
while read -r _; do :; done
n=0
while [ "$n" -lt 250 ]; do
  left=0
  for p in /proc/[0-9]*; do
    line=$(tr '\000' ' ' <"$p/cmdline") || continue
    case $line in
    *"/bin/postgres"*"$dir/"*) left=1; if [ "$n" -lt 150 ]; then kill -QUIT "${p#/proc/}"; else kill -KILL "${p#/proc/}"; fi ;;
    *"$dir/"*) left=1; kill -KILL "${p#/proc/}" ;;
    esac
  done 2>/dev/null
  [ "$left" = 0 ] && break
  sleep 0.02
  n=$((n+1))
done
cd /
n=250
until rm -rf -- "$dir" 2>/dev/null || [ "$n" -eq 0 ]; do sleep 0.02; n=$((n-1)); done
`

// A host is a directory with processes that run as an unprivileged user. All end with the test and
// with this program.
type host struct {
	dir  string
	user *syscall.Credential // nil: this process's user
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "pawl-ha-")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{dir: dir}
	if os.Geteuid() == 0 { // PostgreSQL and Patroni's tools refuse to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Fatalf("there is no user postgres (install postgresql): %v", err)
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		h.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			t.Fatal(err)
		}
	}
	pipe, err := startWatchdog(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			h.tell(t)
		}
		pipe()
	})
	return h
}

// startWatchdog starts the shell that clears up. clear makes it do so now.
func startWatchdog(dir string) (clear func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	dog := exec.Command("/bin/sh", "-c", clearUp, "pawl-watchdog")
	dog.Dir, dog.Stdin = "/", r
	dog.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's signals do not reach it
	if err := dog.Start(); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(w, dir); err != nil {
		return nil, err
	}
	return func() { _ = w.Close(); _ = dog.Wait() }, nil
}

// tell logs the last lines of all logs.
func (h *host) tell(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(h.dir, "*.log"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		t.Logf("%s:\n%s", filepath.Base(file), strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
}

// start starts a program whose arguments contain the directory.
func (h *host) start(t *testing.T, name string, program string, args ...string) *os.Process {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(h.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = h.dir, log, log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "LC_ALL=C.UTF-8", "TZ=UTC", "PYTHONUNBUFFERED=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: h.user}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (install etcd-server, patroni, haproxy and postgresql)", err)
	}
	go func() { _ = cmd.Wait() }()
	return cmd.Process
}

// write writes a file that the unprivileged user can read.
func (h *host) write(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := brokers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
