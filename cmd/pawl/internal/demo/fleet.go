package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// WorkerCommand is the hidden command under which the binary runs as a worker.
const WorkerCommand = "demo-worker"

// drainPatience is how long a worker may take to stop: its consumer and its job worker drain for 30 s at most.
const drainPatience = 45 * time.Second

// A fleet keeps worker processes running: one that is killed is replaced.
type fleet struct {
	executable string
	config     workerConfig
	listener   *os.File // of webhooks, which all workers inherit; nil: none
	events     *tally
	said       func(line string) // what workers want told; nil: nobody listens
	failed     chan error        // a worker ended that nobody killed

	mu      sync.Mutex
	workers []*worker
	closing bool
}

// A worker is one process.
type worker struct {
	number int
	cmd    *exec.Cmd
	stdin  io.WriteCloser // its end tells the worker that we are gone
	ready  chan struct{}  // closed at its first line
	gone   chan struct{}  // closed when it was waited for
	doomed bool           // a kill is under way; guarded by fleet.mu
	last   tail
}

func newFleet(executable string, config workerConfig) *fleet {
	return &fleet{executable: executable, config: config, events: &tally{}, failed: make(chan error, 1)}
}

// start runs n workers and waits until each has begun to consume.
func (f *fleet) start(ctx context.Context, n int) error {
	for i := range n {
		if err := f.spawn(i + 1); err != nil {
			return err
		}
	}
	for _, w := range f.snapshot() {
		select {
		case <-w.ready:
		case err := <-f.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (f *fleet) snapshot() []*worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.workers)
}

// spawn starts a worker, unless the fleet is being brought down.
func (f *fleet) spawn(number int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return nil
	}
	w := &worker{number: number, ready: make(chan struct{}), gone: make(chan struct{})}
	stdout, err := w.start(f.executable, f.config, f.listener)
	if err != nil {
		return err
	}
	f.workers = append(f.workers, w)
	go f.follow(w, stdout)
	return nil
}

// start runs the process and hands it its configuration.
func (w *worker) start(executable string, config workerConfig, listener *os.File) (stdout io.Reader, err error) {
	first, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	w.cmd = exec.Command(executable, WorkerCommand)
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches the demo, which stops its workers in order
	w.cmd.Stderr = &w.last
	if listener != nil {
		w.cmd.ExtraFiles = []*os.File{listener} // webhookFile
	}
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if stdout, err = w.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	// If it is gone already, follow will say why.
	_, _ = fmt.Fprintf(w.stdin, "%s\n", first)
	return stdout, nil
}

// follow reads what a worker reports, one event a line, until it is gone, and replaces it if it was killed.
func (f *fleet) follow(w *worker, stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if lines.Text() == readyLine {
			close(w.ready)
			continue
		}
		if text, found := strings.CutPrefix(lines.Text(), sayPrefix); found && f.said != nil {
			f.said(text)
			continue
		}
		f.events.add(lines.Text())
	}
	err := w.cmd.Wait()
	closing, doomed := f.remove(w)
	close(w.gone) // only now, so that nobody who waited for its end finds it in the fleet
	switch {
	case closing:
		return
	case !doomed || !wasKilled(err):
		f.fail(fmt.Errorf("worker %d ended by itself: %v: %s", w.number, err, w.last.String()))
		return
	}
	if err := f.spawn(w.number); err != nil {
		f.fail(fmt.Errorf("restarting worker %d: %w", w.number, err))
	}
}

func (f *fleet) remove(w *worker) (closing, doomed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers = slices.DeleteFunc(f.workers, func(other *worker) bool { return other == w })
	return f.closing, w.doomed
}

func wasKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (f *fleet) fail(err error) {
	select {
	case f.failed <- err:
	default: // one is enough
	}
}

// pick chooses a worker that is consuming and marks it, or returns nil if none is.
func (f *fleet) pick(random *rand.Rand) *worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	var up []*worker
	for _, w := range f.workers {
		select {
		case <-w.ready:
			up = append(up, w)
		default:
		}
	}
	if len(up) == 0 {
		return nil
	}
	w := up[random.IntN(len(up))]
	w.doomed = true
	return w
}

// doom marks a worker that is about to be killed.
func (f *fleet) doom(w *worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.doomed = true
}

// kill sends SIGKILL and waits for the end.
func (f *fleet) kill(w *worker) {
	_ = w.cmd.Process.Signal(syscall.SIGKILL)
	<-w.gone
}

// arm lets the worker do something to itself, such as "kill", when it next comes by a named point, and reports whether it could be
// told.
func (f *fleet) arm(w *worker, point, action string) bool {
	_, err := fmt.Fprintf(w.stdin, "%s=%s\n", point, action)
	return err == nil
}

// diesWithin waits for an armed worker's end and reports whether it came in time.
func (f *fleet) diesWithin(ctx context.Context, w *worker, patience time.Duration) bool {
	select {
	case <-w.gone:
		return true
	case <-time.After(patience):
	case <-ctx.Done():
	}
	return false
}

// drain stops the workers in good order; each must end by itself, with success.
func (f *fleet) drain(ctx context.Context) error {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, drainPatience, fmt.Errorf("a worker did not stop within %v of SIGTERM", drainPatience))
	defer cancel()
	workers := f.snapshot()
	for _, w := range workers {
		select {
		case <-w.ready: // one that was just restarted does not catch signals yet
		case <-w.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		_ = w.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, w := range workers {
		select {
		case <-w.gone:
		case <-ctx.Done():
			return fmt.Errorf("%w: worker %d: %s", context.Cause(ctx), w.number, w.last.String())
		}
		if !w.cmd.ProcessState.Success() {
			return fmt.Errorf("worker %d did not stop cleanly: %v: %s", w.number, w.cmd.ProcessState, w.last.String())
		}
	}
	return nil
}

// killAll ends whatever still runs.
func (f *fleet) killAll() {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	for _, w := range f.snapshot() {
		f.kill(w)
	}
}

// A tally counts events by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int64
}

func (t *tally) add(event string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = map[string]int64{}
	}
	t.n[event]++
}

func (t *tally) count(event string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n[event]
}

// A tail keeps the end of what a worker wrote to stderr, to explain an end nobody asked for.
type tail struct {
	mu   sync.Mutex
	text string
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text += string(p)
	if over := len(t.text) - 2000; over > 0 {
		t.text = t.text[over:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(t.text), "\n")
	return lines[len(lines)-1]
}
