package counted

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/testbed/fleet"
)

// workerCommand is the argument that makes a test binary a worker process.
const workerCommand = "counted-worker"

// publishes is whether the package's Opener has a sink.
var publishes bool

// Main runs the tests of a package, or the worker process that a run started. Call it from
// TestMain.
func Main(m *testing.M, open Opener) {
	Work(open)
	os.Exit(m.Run())
}

// Work returns at once in a test process. In a worker process it runs the worker and exits. Call it
// first in a TestMain that does more.
func Work(open Opener) {
	publishes = open.Sink != nil
	if len(os.Args) != 2 || os.Args[1] != workerCommand {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := work(ctx, open, os.Stdin, os.Stdout); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// work reads its assignment from the first line of in. Later lines arm fault points. The end of in
// means that the tests have ended, and exits the process at once.
func work(ctx context.Context, open Opener, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	var a assignment
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &a) != nil {
		return errors.New("this command is for the counted runs only")
	}
	go func() {
		for lines.Scan() {
			if err := fault.Arm(lines.Text()); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		os.Exit(1)
	}()
	j := &journal{out: out}
	// The context also passes the hooks to the Opener's sources and sinks.
	ctx = pawl.WithHooks(ctx, a.hooks(j))
	p, closePool, err := a.part(ctx, open, j)
	if err != nil {
		return err
	}
	defer closePool()
	fmt.Fprintln(out, fleet.Ready)
	return runPart(ctx, p)
}
