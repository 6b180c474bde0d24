package brokers

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// script ends the broker whose directory is $1 once its standard input ends, and removes the directory unless $2 is keep. A shell outlives us
// whatever kills us. It kills the process group whose number it read last, if its leader is still ours.
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

// A watchdog is a shell that clears up after us, however we end.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File // the kernel closes it when we die
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no signal of a terminal reaches it
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, pipe: w}, nil
}

// guard tells which process leads the broker's group.
func (d *watchdog) guard(pid int) error {
	if _, err := fmt.Fprintln(d.pipe, pid); err != nil {
		return fmt.Errorf("watchdog: %w", err)
	}
	return nil
}

// dismiss ends the watchdog after its work was done for it.
func (d *watchdog) dismiss() {
	if d == nil {
		return
	}
	_ = d.pipe.Close()
	_ = d.cmd.Wait()
}
