package demo

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/internal/fault"
)

// TestMain is also the workers of these tests: processes that keep to the protocol and have no work.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == WorkerCommand {
		os.Exit(idleWorker())
	}
	os.Exit(m.Run())
}

func idleWorker() int {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	go func() {
		for lines.Scan() {
			if fault.Arm(lines.Text()) == nil {
				_ = fault.At("here")
			}
		}
		os.Exit(1)
	}()
	fmt.Println(readyLine)
	<-terminated
	return 0
}

func newTestFleet(t *testing.T, workers int) *fleet {
	t.Helper()
	f := newFleet(os.Args[0], workerConfig{})
	t.Cleanup(f.killAll)
	if err := f.start(t.Context(), workers); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fleet) pickAny(t *testing.T) *worker {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	for t.Context().Err() == nil {
		if w := f.pick(random); w != nil {
			return w
		}
	}
	t.Fatal("no worker came up")
	return nil
}

// A worker is killed once: who waited for its end does not find it in the fleet, where it would be picked and counted
// again.
func TestFleet_TheDeadAreNotPicked(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t, 2)
	killed := map[int]bool{}
	for range 30 {
		w := f.pickAny(t)
		if killed[w.cmd.Process.Pid] {
			t.Fatalf("process %d was picked after its end", w.cmd.Process.Pid)
		}
		killed[w.cmd.Process.Pid] = true
		f.kill(w)
	}
	if err := f.drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// A worker that was restarted a moment ago, and does not catch signals yet, is stopped in good order too.
func TestFleet_DrainsRightAfterAKill(t *testing.T) {
	t.Parallel()
	for range 5 {
		f := newTestFleet(t, 2)
		f.kill(f.pickAny(t))
		if err := f.drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := f.snapshot(); len(left) != 0 {
			t.Fatalf("%d workers left", len(left))
		}
	}
}

// An armed worker dies by its own hand when it comes by the point, and is replaced.
func TestFleet_ArmedWorkerDiesAtThePoint(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t, 1)
	w := f.pickAny(t)
	if !f.arm(w, "here", "kill") || !f.diesWithin(t.Context(), w, drainPatience) {
		t.Fatal("the worker lives")
	}
	if next := f.pickAny(t); next == w || next.number != w.number {
		t.Errorf("worker %d was replaced by %d", w.number, next.number)
	}
}

// A worker that ends without having been killed fails the run.
func TestFleet_EndNobodyAskedFor(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t, 1)
	_ = f.snapshot()[0].stdin.Close()
	if err := <-f.failed; err == nil {
		t.Error("no error")
	}
}
