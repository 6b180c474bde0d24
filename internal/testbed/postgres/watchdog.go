package postgres

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// script stops the server in the directory $1 and removes it once its standard input ends. A shell
// survives every death of this process, on every Unix. The kernel's parent-death signal is Linux
// only, depends on the thread and removes nothing.
//
// The script waits until no process has the server's command line. It does not check the process
// id, because a later process may have the same one. Also, in a container whose first process does
// not reap, kill -0 succeeds for a dead server forever.
const script = `
d=$1
pidfile=$d/data/postmaster.pid
serving() {
  if [ -r "/proc/$1/cmdline" ]; then tr '\000' ' ' <"/proc/$1/cmdline"; else ps -ww -o args= -p "$1"; fi 2>/dev/null |
    grep -qF -e "-k $d "
}
await() { # until the server is gone, at most $1 times 20 ms
  n=$1
  while [ "$n" -gt 0 ] && serving "$pid"; do sleep 0.02; n=$((n-1)); done
}

read -r pid # the server's number, once there is a server
read -r _   # end of file: the program is gone, however it died

[ -d "$d" ] || [ -n "$pid" ] || exit 0
link=$(readlink "$d/named") && [ "$(readlink "$link")" = "$d" ] && rm -f -- "$link" # before the server ends: no other can be there yet
n=50
while [ -z "$pid" ] && [ -d "$d/data" ] && [ "$n" -gt 0 ]; do # it died between starting the server and telling us
  read -r pid <"$pidfile" || { sleep 0.02; n=$((n-1)); }
done 2>/dev/null

if [ -n "$pid" ] && serving "$pid"; then
  if [ -L "$d/data" ]; then kill -INT "$pid"; await 3000; fi # kept data: let it write its checkpoint
  if serving "$pid"; then kill -QUIT "$pid"; await 1000; fi
fi
cd /
n=500
until rm -rf -- "$d" 2>/dev/null || [ "$n" -eq 0 ]; do sleep 0.02; n=$((n-1)); done # initdb may still be writing
`

// A watchdog is a shell that cleans up after this process.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File // the write end: the kernel closes it when this process dies
}

// watchdogCommand returns the command that runs the script on dir, in its own session, which no
// terminal signal reaches.
func watchdogCommand(ctx context.Context, dir string, who identity) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script, "pawl-watchdog", dir)
	cmd.Dir, cmd.Env = "/", childEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if who.switches {
		cmd.SysProcAttr.Credential = who.attr().Credential
	}
	return cmd
}

// startWatchdog starts the watchdog. It must run before anything that the watchdog may have to
// remove is created.
func startWatchdog(dir string, who identity) (*watchdog, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("postgres: watchdog: %w", err)
	}
	defer r.Close()
	cmd := watchdogCommand(context.Background(), dir, who)
	cmd.Stdin = r
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("postgres: watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, pipe: w}, nil
}

// guard sends the watchdog the id of the process to stop.
func (d *watchdog) guard(pid int) error {
	if _, err := fmt.Fprintln(d.pipe, pid); err != nil {
		return fmt.Errorf("postgres: watchdog: %w", err)
	}
	return nil
}

// dismiss ends the watchdog after Stop has done its work.
func (d *watchdog) dismiss() {
	if d == nil {
		return
	}
	_ = d.pipe.Close()
	_ = d.cmd.Wait()
}
