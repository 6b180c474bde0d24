package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// WorkerCommand is the hidden command under which the binary runs as a worker.
const WorkerCommand = "demo-worker"

// drainPatience is how long a worker may take to stop.
const drainPatience = 20 * time.Second

// A fleet keeps worker processes running: one that is killed is replaced.
type fleet struct {
	executable string
	config     workerConfig
	events     *tally
	failed     chan error // a worker ended that nobody killed

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
	return append([]*worker(nil), f.workers...)
}

func (f *fleet) spawn(number int) error {
	w := &worker{number: number, ready: make(chan struct{}), gone: make(chan struct{})}
	w.cmd = exec.Command(f.executable, WorkerCommand)
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches the demo, which stops its workers in order
	w.cmd.Stderr = &w.last
	var err error
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := w.cmd.Start(); err != nil {
		return err
	}
	config, err := json.Marshal(f.config)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w.stdin, "%s\n", config); err != nil {
		return err
	}
	f.mu.Lock()
	f.workers = append(f.workers, w)
	f.mu.Unlock()
	go f.follow(w, stdout)
	return nil
}

// follow reads what a worker reports, one event a line, until it is gone, and replaces it if it was killed.
func (f *fleet) follow(w *worker, stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if lines.Text() == readyLine {
			close(w.ready)
			continue
		}
		f.events.add(lines.Text())
	}
	err := w.cmd.Wait()
	close(w.gone)

	f.mu.Lock()
	for i := range f.workers {
		if f.workers[i] == w {
			f.workers = append(f.workers[:i], f.workers[i+1:]...)
			break
		}
	}
	closing, doomed := f.closing, w.doomed
	f.mu.Unlock()
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

// kill sends SIGKILL and waits for the end.
func (f *fleet) kill(w *worker) {
	_ = w.cmd.Process.Signal(syscall.SIGKILL)
	<-w.gone
}

// killAt lets the worker kill itself when it next comes by a named point, and reports whether it did in time.
func (f *fleet) killAt(ctx context.Context, w *worker, point string, patience time.Duration) bool {
	if _, err := fmt.Fprintf(w.stdin, "%s=kill\n", point); err != nil {
		return false
	}
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
	workers := f.snapshot()
	for _, w := range workers {
		_ = w.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, w := range workers {
		select {
		case <-w.gone:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(drainPatience):
			return fmt.Errorf("worker %d did not stop within %v of SIGTERM: %s", w.number, drainPatience, w.last.String())
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
