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

// A developed is a running server for development.
type developed struct {
	server    interface{ Done() <-chan struct{} } // closed when it has ended
	title     string
	dir       string // of its data
	output    devOutput
	variables []string // of a command: they hold the URL
	shell     string   // the variable that a person exports
	next      string   // the next step if the server ends by itself
}

// A devOutput is the JSON of `pawl dev postgres`, `pawl dev nats` and its siblings. Fields are only
// added, never removed.
type devOutput struct {
	URL string `json:"url"`
	PID int    `json:"pid,omitempty"` // of a PostgreSQL
	Dir string `json:"dir,omitempty"` // of a broker, with configuration, data and log
}

// serve runs a command on the server, or prints the URL and waits for Ctrl-C. The URL is on stdout,
// for programs; the next steps are on stderr.
func (d developed) serve(cmd *cobra.Command, command []string, asJSON bool) error {
	if len(command) > 0 {
		return d.run(cmd, command)
	}
	say := progress(cmd)
	say(d.title + " is running, data in " + d.dir + "; Ctrl-C stops it")
	say("in another shell: export " + d.shell + "='" + d.output.URL + "'")
	if err := printOne(cmd, asJSON, d.output, d.output.URL); err != nil {
		return err
	}
	select {
	case <-cmd.Context().Done():
		say("stopping; the data stays in " + d.dir)
		return nil
	case <-d.server.Done():
		return failed(cmd, errEnded, d.next)
	}
}

var errEnded = errors.New("the server ended by itself")

// run runs a command with the URL in each of the variables, and returns when all its processes have
// ended. The command gets its own process group, because programs such as go run do not pass
// signals on.
func (d developed) run(cmd *cobra.Command, command []string) error {
	program := exec.Command(command[0], command[1:]...)
	program.Env = os.Environ()
	for _, name := range d.variables {
		program.Env = append(program.Env, name+"="+d.output.URL)
	}
	program.Stdout, program.Stderr = os.Stdout, os.Stderr
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	progress(cmd)("running " + strings.Join(command, " "))
	if err := program.Start(); err != nil {
		return failed(cmd, err, "check the command behind --")
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	defer endGroup(-program.Process.Pid)
	select {
	case err := <-ended:
		if err != nil {
			return failed(cmd, fmt.Errorf("%s: %w", command[0], err), "look at its output")
		}
		return nil
	case <-d.server.Done():
		return failed(cmd, errEnded, "start it again; the data stays in "+d.dir)
	case <-cmd.Context().Done():
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
