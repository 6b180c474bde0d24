package brokers

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// script kills the broker whose directory is $1 once its standard input ends, and removes the
// directory unless $2 is keep. The shell survives every death of this process. It kills the process
// group with the number that it read last, if the command line of the group's leader contains $1.
const script = `
while read -r line; do pid=$line; done
if [ -n "$pid" ] && { tr '\000' ' ' <"/proc/$pid/cmdline" || ps -ww -o args= -p "$pid"; } 2>/dev/null | grep -qF -e "$1"; then
  kill -KILL "-$pid" 2>/dev/null
fi
[ "$2" = keep ] && exit 0
cd /
n=250
until rm -rf -- "$1" 2>/dev/null || [ "$n" -eq 0 ]; do sleep 0.02; n=$((n-1)); done
`

// A watchdog is a shell that kills the broker and removes its directory when this process ends in
// any way.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File // the kernel closes it when this process ends
}

func startWatchdog(dir string, keep bool) (*watchdog, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	defer r.Close()
	what := "remove"
	if keep {
		what = "keep"
	}
	cmd := exec.Command("/bin/sh", "-c", script, "pawl-watchdog", dir, what)
	cmd.Dir, cmd.Stdin = "/", r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's signals do not reach it
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, pipe: w}, nil
}

// guard sends the watchdog the process id of the broker, which leads its group.
func (d *watchdog) guard(pid int) error {
	if _, err := fmt.Fprintln(d.pipe, pid); err != nil {
		return fmt.Errorf("watchdog: %w", err)
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
