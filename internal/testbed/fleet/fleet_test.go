package fleet

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/internal/fault"
)

const workerCommand = "idle-worker"

// TestMain is also the worker process of these tests, which follows the protocol and does no work.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerCommand {
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
	fmt.Println(Ready)
	<-terminated
	return 0
}

func newTestFleet(t *testing.T, workers int) *Fleet {
	t.Helper()
	f := New(os.Args[0], workerCommand, func(int) any { return struct{}{} }, func(int, string) {})
	t.Cleanup(f.KillAll)
	if err := f.Start(t.Context(), workers); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Fleet) pickAny(t *testing.T) *Worker {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	for t.Context().Err() == nil {
		if w := f.Pick(random); w != nil {
			return w
		}
	}
	t.Fatal("no worker came up")
	return nil
}

// A worker is killed once. A caller that waited for its end does not find it in the fleet, where it
// would be picked and counted again.
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
		f.Kill(w)
	}
	if err := f.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// A worker that was just restarted and does not catch signals yet is also shut down cleanly.
func TestFleet_DrainsRightAfterAKill(t *testing.T) {
	t.Parallel()
	for range 5 {
		f := newTestFleet(t, 2)
		f.Kill(f.pickAny(t))
		if err := f.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := f.Workers(); len(left) != 0 {
			t.Fatalf("%d workers left", len(left))
		}
	}
}

// An armed worker kills itself at the fault point and is replaced.
func TestFleet_ArmedWorkerDiesAtThePoint(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t, 1)
	w := f.pickAny(t)
	if !f.Arm(w, "here", "kill") || !f.DiesWithin(t.Context(), w, drainPatience) {
		t.Fatal("the worker lives")
	}
	if next := f.pickAny(t); next == w || next.Number != w.Number {
		t.Errorf("worker %d was replaced by %d", w.Number, next.Number)
	}
}

// A worker that ends without having been killed fails the run.
func TestFleet_UnexpectedExitFailsTheRun(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t, 1)
	_ = f.Workers()[0].stdin.Close()
	if err := <-f.failed; err == nil {
		t.Error("no error")
	}
}

// A frozen worker is reported as frozen, continues when it is woken, and shuts down cleanly.
func TestFleet_FreezesAndWakes(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t, 1)
	w := f.pickAny(t)
	if !f.Freeze(w) || f.State(w) != "frozen" || !f.Wake(w) || f.State(w) != "up" {
		t.Fatalf("the worker is %s", f.State(w))
	}
	if err := f.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if f.Freeze(w) {
		t.Error("a worker that is gone was frozen")
	}
}

// A stopped worker shuts down cleanly and is not replaced. An added worker stays.
func TestFleet_StopsOneAndAddsOne(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t, 1)
	first := f.Workers()[0]
	second, err := f.Add(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Stop(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if left := f.Workers(); len(left) != 1 || left[0] != second {
		t.Errorf("the fleet has %d workers", len(left))
	}
	if _, err := f.Stop(t.Context(), second); err != nil {
		t.Error(err)
	}
}

// The error of a worker that does not stop names a file with its goroutines.
func TestFleet_KeepsTheGoroutinesOfALateWorker(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t, 1)
	w := f.Workers()[0]
	f.mu.Lock()
	w.leaves = true
	f.mu.Unlock()
	err := w.late(errors.New("it is late"))
	found := regexp.MustCompile(`^it is late: .*\(its goroutines: (.+)\)$`).FindStringSubmatch(err.Error())
	if found == nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(found[1]) })
	if dump, err := os.ReadFile(found[1]); err != nil || !strings.Contains(string(dump), "fleet.idleWorker") {
		t.Errorf("%v, %s", err, dump)
	}
}

// With Mortal, a worker that killed itself is replaced. One that ended in another way fails the
// run.
func TestFleet_MortalsKillThemselves(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t, 1)
	f.mu.Lock()
	f.Mortal = true
	f.mu.Unlock()
	w := f.Workers()[0]
	if !f.Arm(w, "here", "kill") {
		t.Fatal("the worker cannot be told")
	}
	<-w.gone
	next := f.pickAny(t)
	if next.Number != w.Number {
		t.Errorf("worker %d was replaced by %d", w.Number, next.Number)
	}
	_ = next.stdin.Close()
	if err := <-f.failed; err == nil {
		t.Error("no error")
	}
}
