package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
)

// A devBroker is a broker that `pawl dev` runs.
type devBroker struct {
	name  string // of the command
	title string // for people, such as "NATS with JetStream"
	start func(context.Context, brokers.Options) (*brokers.Server, error)
	url   func(*brokers.Server) string
	// variables are the environment variables of COMMAND that hold the URL.
	variables []string
	// about is the first paragraph of the help: the program that runs, and its source.
	about string
	// more adds flags of this broker. It returns the function that applies them once the broker
	// accepts clients. Nil means no such flags.
	more func(*cobra.Command) (served func(context.Context, *brokers.Server) error)
	// examples are lines of the help.
	examples []string
}

type devBrokerFlags struct {
	dir  string
	port int
	json *bool
	// served applies the flags of this broker.
	served func(context.Context, *brokers.Server) error
}

func newDevBroker(b devBroker) *cobra.Command {
	var f devBrokerFlags
	cmd := &cobra.Command{
		Use:   b.name + " --dir DIR [-- COMMAND ...]",
		Short: "Run " + b.title + " until Ctrl-C, or for one command; its data stays in DIR",
		Long: b.about + fmt.Sprintf(`

It listens on 127.0.0.1 only, without a secret password: each user of this machine can read, send and delete its messages. The URL is
printed on stdout once the broker accepts clients, and is the same at each start on DIR. The broker stops when this command ends,
even if it is killed; the data stays.

With a COMMAND behind --, it runs that command with the URL in %s, and stops when the command ends. Ctrl-C and
SIGTERM reach the command as SIGINT.`, strings.Join(b.variables, " and ")),
		Example: "  " + strings.Join(b.examples, "\n  "),
		Args:    behindDash,
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, b, args) },
	}
	cmd.Flags().StringVar(&f.dir, "dir", "", "directory of configuration, data and log; created if missing")
	cmd.Flags().IntVar(&f.port, "port", 0, "port on 127.0.0.1; default: the port of the last start on DIR, or a free one")
	f.json = addJSONFlag(cmd)
	if b.more != nil {
		f.served = b.more(cmd)
	}
	return cmd
}

func (f devBrokerFlags) run(cmd *cobra.Command, b devBroker, command []string) (err error) {
	switch {
	case f.dir == "":
		return misused(cmd, "the data directory is missing", "pass --dir, as in: pawl dev "+b.name+" --dir ./"+b.name+"data")
	case f.port < 0 || f.port > 65535:
		return misused(cmd, fmt.Sprintf("--port must lie between 1 and 65535, it is %d", f.port), "leave it out for a free port")
	}
	unlock, err := lockDir(f.dir)
	if err != nil {
		return failed(cmd, err, "stop the broker that runs there, or choose another directory with --dir")
	}
	defer unlock()
	if f.port > 0 { // before anything is downloaded
		if err := brokers.AwaitFree(cmd.Context(), f.port); err != nil {
			return whyBrokerNotStarted(cmd, err, f.dir)
		}
	}
	server, err := b.start(cmd.Context(), brokers.Options{Dir: f.dir, Port: f.port, Log: progress(cmd)})
	if err != nil {
		return whyBrokerNotStarted(cmd, err, f.dir)
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if f.served != nil {
		if err := f.served(cmd.Context(), server); err != nil {
			return failed(cmd, err, "check the flags; the broker's data stays in "+server.Dir())
		}
	}
	return developed{server: server, title: b.title, dir: server.Dir(), variables: b.variables, output: devOutput{URL: b.url(server), Dir: server.Dir()}, shell: b.variables[0],
		next: "read " + filepath.Join(server.Dir(), "pawl.log") + " and start it again; the data stays"}.serve(cmd, command, *f.json)
}

// lockDir creates a directory and locks it for this process. The lock ends with unlock or with the
// process, even if it is killed.
func lockDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "pawl.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("a broker runs in %s already", dir)
		}
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	return func() { _ = file.Close() }, nil
}

// whyBrokerNotStarted returns the first line of a failed start and the last line of the broker's
// log behind it, which holds the reason.
func whyBrokerNotStarted(cmd *cobra.Command, err error, dir string) error {
	if cmd.Context().Err() != nil {
		return failed(cmd, errors.New("interrupted"), "run it again")
	}
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	why := lines[0]
	if last := strings.TrimSpace(lines[len(lines)-1]); len(lines) > 1 && last != "" {
		why += ": " + last
	}
	return failed(cmd, errors.New(why), "check --dir and --port; the broker's own log is "+filepath.Join(dir, "pawl.log"))
}
