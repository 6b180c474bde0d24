package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// endLimit is how long a command may take to end when it was told to: longer than Kubernetes would give it.
const endLimit = 45 * time.Second

// behindDash accepts arguments behind -- only, and there a command that exists.
func behindDash(cmd *cobra.Command, args []string) error {
	if at := cmd.ArgsLenAtDash(); at > 0 || at < 0 && len(args) > 0 {
		return noArgs(cmd, args)
	}
	if len(args) > 0 {
		if _, err := exec.LookPath(args[0]); err != nil {
			return misused(cmd, err.Error(), "check the command behind --")
		}
	}
	return nil
}

// A served is a running server for development.
type served interface {
	Done() <-chan struct{} // closed when it has ended
}

// runOn runs a command on a server whose data stays in dir, and returns when it has ended with all that it started. go run, for one, does
// not pass signals on to its program, so the command is a process group of its own. Each of the variables holds the URL.
func runOn(cmd *cobra.Command, server served, dir, url string, variables, command []string) error {
	program := exec.Command(command[0], command[1:]...)
	program.Env = os.Environ()
	for _, name := range variables {
		program.Env = append(program.Env, name+"="+url)
	}
	program.Stdout, program.Stderr = os.Stdout, os.Stderr
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	progress(cmd)("running " + strings.Join(command, " "))
	if err := program.Start(); err != nil {
		return failed(cmd, err, "check the command behind --")
	}
	group := -program.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	select {
	case err := <-ended:
		endGroup(group)
		if err != nil {
			return failed(cmd, fmt.Errorf("%s: %w", command[0], err), "look at its output")
		}
		return nil
	case <-server.Done():
		endGroup(group)
		return failed(cmd, errors.New("the server ended by itself"), "start it again; the data stays in "+dir)
	case <-cmd.Context().Done():
		endGroup(group)
		return nil
	}
}

// endGroup tells the processes of a group to stop, as Ctrl-C does, waits for them, and kills those that do not. At SIGTERM go run would end
// before its program.
func endGroup(group int) {
	if syscall.Kill(group, syscall.SIGINT) != nil {
		return // there are none
	}
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	for ctx.Err() == nil {
		if syscall.Kill(group, 0) != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
}
