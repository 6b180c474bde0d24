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

// endLimit is how long a command may take to stop after SIGINT. It is longer than Kubernetes's
// default of 30 s.
const endLimit = 45 * time.Second

// behindDash accepts arguments only behind --, where the first must be an executable command.
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

// runOn runs a command with the URL in each of the variables, and returns when all its processes
// have ended. The server's data stays in dir. The command gets its own process group, because
// programs such as go run do not pass signals on.
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

// endGroup sends SIGINT to a process group, as Ctrl-C does, waits for its processes, and kills
// those that remain. It does not send SIGTERM, because go run would exit before its program.
func endGroup(group int) {
	if syscall.Kill(group, syscall.SIGINT) != nil {
		return // no processes are left
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
