package postgres

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// script clears one server directory, $1, once its standard input ends. A shell outlives us on every Unix, whatever
// kills us; the kernel's parent-death signal is Linux only, follows the thread and removes nothing.
//
// It waits for the command line of the server to vanish, not for its process id: a later process may have the same
// number, and in a container whose first process does not reap, a dead server answers kill -0 for ever.
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

// A watchdog is a shell that clears up after us.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File // we hold the end that is written to; the kernel closes it when we die
}

// watchdogCommand runs the script on dir, in a session of its own: no terminal signal reaches it.
func watchdogCommand(ctx context.Context, dir string, who identity) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script, "pawl-watchdog", dir)
	cmd.Dir, cmd.Env = "/", childEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if who.switches {
		cmd.SysProcAttr.Credential = who.attr().Credential
	}
	return cmd
}

// startWatchdog comes before everything that it may have to clear.
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

// guard tells the watchdog which process to stop.
func (d *watchdog) guard(pid int) error {
	if _, err := fmt.Fprintln(d.pipe, pid); err != nil {
		return fmt.Errorf("postgres: watchdog: %w", err)
	}
	return nil
}

// dismiss ends the watchdog after its work has been done for it.
func (d *watchdog) dismiss() {
	if d == nil {
		return
	}
	_ = d.pipe.Close()
	_ = d.cmd.Wait()
}
