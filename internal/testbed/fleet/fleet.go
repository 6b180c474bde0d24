// Package fleet keeps worker processes running, kills and freezes them, and reads what they report.
package fleet

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

// Ready is the first line that a worker writes, once it runs. Its reports follow. The first line
// that a worker reads is its configuration. Later lines arm fault points. The end of its input
// means that its parent has ended.
const Ready = "ready"

// drainPatience is how long a worker may take to stop. Its consumer and its job worker drain for at
// most 30 s.
const drainPatience = 45 * time.Second

// A Fleet keeps worker processes running and replaces a killed one.
type Fleet struct {
	Executable string
	Command    string
	Config     func(number int) any          // returns the worker's configuration, sent as JSON
	Report     func(number int, line string) // gets each line that a worker writes
	// Listener, made by [Share], is inherited by all workers as file 3. It may be nil.
	Listener *os.File
	Mortal   bool // a worker that sends SIGKILL to itself is replaced

	failed  chan error // gets an error when a worker exits unexpectedly
	mu      sync.Mutex
	workers []*Worker
	closing bool
}

// New returns a fleet without workers.
func New(executable, command string, config func(number int) any, report func(number int, line string)) *Fleet {
	return &Fleet{Executable: executable, Command: command, Config: config, Report: report, failed: make(chan error, 1)}
}

// Failed returns a channel with an error for a worker that exited although the fleet did not kill
// it.
func (f *Fleet) Failed() <-chan error { return f.failed }

// A Worker is one process.
type Worker struct {
	Number int
	cmd    *exec.Cmd
	stdin  io.WriteCloser // its end tells the worker that the parent has ended
	ready  chan struct{}  // closed at its first line
	gone   chan struct{}  // closed when the process has been waited for
	doomed bool           // a kill is under way; guarded by Fleet.mu
	frozen bool           // it has SIGSTOP; guarded by Fleet.mu
	leaves bool           // it was asked to exit and is not replaced; guarded by Fleet.mu
	last   tail
}

// PID returns the process id.
func (w *Worker) PID() int { return w.cmd.Process.Pid }

// Start starts n workers and waits until each is ready.
func (f *Fleet) Start(ctx context.Context, n int) error {
	for i := range n {
		if _, err := f.spawn(i + 1); err != nil {
			return err
		}
	}
	for _, w := range f.Workers() {
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

// Workers returns the running workers.
func (f *Fleet) Workers() []*Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.workers)
}

// spawn starts a worker. While the fleet shuts down it returns nil.
func (f *Fleet) spawn(number int) (*Worker, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return nil, nil
	}
	w := &Worker{Number: number, ready: make(chan struct{}), gone: make(chan struct{})}
	stdout, err := w.start(f.Executable, f.Command, f.Config(number), f.Listener)
	if err != nil {
		return nil, err
	}
	f.workers = append(f.workers, w)
	go f.follow(w, stdout)
	return w, nil
}

// start starts the process and sends its configuration.
func (w *Worker) start(executable, command string, config any, listener *os.File) (stdout io.Reader, err error) {
	first, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	w.cmd = exec.Command(executable, command)
	// Ctrl-C reaches only the demo, which stops its workers in order.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w.cmd.Stderr = &w.last
	if listener != nil {
		w.cmd.ExtraFiles = []*os.File{listener}
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
	// If the process has ended, follow reports why.
	_, _ = fmt.Fprintf(w.stdin, "%s\n", first)
	return stdout, nil
}

// follow reads a worker's reports line by line until it ends, and replaces it if it was killed.
func (f *Fleet) follow(w *Worker, stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if lines.Text() == Ready {
			close(w.ready)
			continue
		}
		f.Report(w.Number, lines.Text())
	}
	err := w.cmd.Wait()
	unreplaced, doomed := f.remove(w)
	close(w.gone) // only now, so that a caller that waits for gone does not find it in the fleet
	switch {
	case unreplaced:
		return
	case !doomed || !wasKilled(err):
		f.fail(fmt.Errorf("worker %d ended by itself: %v: %s", w.Number, err, w.last.String()))
		return
	}
	if _, err := f.spawn(w.Number); err != nil {
		f.fail(fmt.Errorf("restarting worker %d: %w", w.Number, err))
	}
}

func (f *Fleet) remove(w *Worker) (unreplaced, doomed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers = slices.DeleteFunc(f.workers, func(other *Worker) bool { return other == w })
	return f.closing || w.leaves, w.doomed || f.Mortal
}

func wasKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (f *Fleet) fail(err error) {
	select {
	case f.failed <- err:
	default: // one error is enough
	}
}

// Pick returns a random ready worker and marks it as doomed, or nil if none is ready.
func (f *Fleet) Pick(random *rand.Rand) *Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	var up []*Worker
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

// Doom marks a worker that is about to be killed.
func (f *Fleet) Doom(w *Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.doomed = true
}

// Kill sends SIGKILL and waits until the process has ended.
func (f *Fleet) Kill(w *Worker) {
	_ = w.cmd.Process.Signal(syscall.SIGKILL)
	<-w.gone
}

// Freeze stops a worker with SIGSTOP. It returns false if the worker has ended.
func (f *Fleet) Freeze(w *Worker) bool { return f.signal(w, syscall.SIGSTOP, true) }

// Wake continues a frozen worker.
func (f *Fleet) Wake(w *Worker) bool { return f.signal(w, syscall.SIGCONT, false) }

func (f *Fleet) signal(w *Worker, s syscall.Signal, frozen bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.cmd.Process.Signal(s) != nil {
		return false
	}
	w.frozen = frozen
	return true
}

// State returns "starting", "up" or "frozen".
func (f *Fleet) State(w *Worker) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-w.ready:
	default:
		return "starting"
	}
	if w.frozen {
		return "frozen"
	}
	return "up"
}

// Arm makes the worker execute an action, such as "kill", when it next reaches a fault point. It
// reports whether the worker's input accepted the command.
func (f *Fleet) Arm(w *Worker, point, action string) bool {
	_, err := fmt.Fprintf(w.stdin, "%s=%s\n", point, action)
	return err == nil
}

// DiesWithin waits for an armed worker to end and reports whether it ended in time.
func (f *Fleet) DiesWithin(ctx context.Context, w *Worker, patience time.Duration) bool {
	select {
	case <-w.gone:
		return true
	case <-time.After(patience):
	case <-ctx.Done():
	}
	return false
}

// Add starts one more worker with a number and waits until it is ready.
func (f *Fleet) Add(ctx context.Context, number int) (*Worker, error) {
	w, err := f.spawn(number)
	if err != nil || w == nil {
		return nil, errors.Join(err, ctx.Err())
	}
	select {
	case <-w.ready:
		return w, nil
	case err := <-f.failed:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Stop shuts one worker down as a deploy does, and returns how long it took. The worker is not
// replaced. Stop fails if ctx ends before the worker, or if the worker does not exit with success.
func (f *Fleet) Stop(ctx context.Context, w *Worker) (took time.Duration, err error) {
	f.mu.Lock()
	w.leaves = true
	f.mu.Unlock()
	began, err := w.terminate(ctx)
	if err != nil {
		return 0, err
	}
	err = w.ended(ctx)
	return time.Since(began), err
}

// Drain shuts the workers down. Each must exit with success.
func (f *Fleet) Drain(ctx context.Context) error {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, drainPatience, fmt.Errorf("a worker did not stop within %v of SIGTERM", drainPatience))
	defer cancel()
	workers := f.Workers()
	for _, w := range workers {
		if _, err := w.terminate(ctx); err != nil {
			return err
		}
	}
	for _, w := range workers {
		if err := w.ended(ctx); err != nil {
			return err
		}
	}
	return nil
}

// terminate sends SIGTERM once the worker is ready, because one that was just started does not
// catch signals yet. It returns the time of the signal.
func (w *Worker) terminate(ctx context.Context) (at time.Time, err error) {
	select {
	case <-w.ready:
	case <-w.gone:
	case <-ctx.Done():
		return at, context.Cause(ctx)
	}
	at = time.Now()
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	return at, nil
}

// ended waits until the worker has ended. It must exit with success.
func (w *Worker) ended(ctx context.Context) error {
	select {
	case <-w.gone:
	case <-ctx.Done():
		return w.late(fmt.Errorf("worker %d has not ended after SIGTERM: %w", w.Number, context.Cause(ctx)))
	}
	if !w.cmd.ProcessState.Success() {
		return fmt.Errorf("worker %d did not stop cleanly: %v: %s", w.Number, w.cmd.ProcessState, w.last.String())
	}
	return nil
}

// KillAll kills all workers.
func (f *Fleet) KillAll() {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	for _, w := range f.Workers() {
		f.Kill(w)
	}
}

// dumpLimit is how long a worker may take after SIGQUIT to print its goroutines and exit.
const dumpLimit = 20 * time.Second

// late adds a goroutine dump to the error of a worker that did not stop in time. A Go program
// prints its goroutines at SIGQUIT and exits. The dump is kept in a file that the error names.
func (w *Worker) late(err error) error {
	last := w.last.String()
	_ = w.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-w.gone:
	case <-time.After(dumpLimit):
	}
	file, failed := os.CreateTemp("", fmt.Sprintf("pawl-worker-%d-*.goroutines", w.Number))
	if failed != nil {
		return fmt.Errorf("%w: %s (no dump: %w)", err, last, failed)
	}
	_, failed = file.WriteString(w.last.whole())
	if failed = errors.Join(failed, file.Close()); failed != nil {
		return fmt.Errorf("%w: %s (no dump: %w)", err, last, failed)
	}
	return fmt.Errorf("%w: %s (its goroutines: %s)", err, last, file.Name())
}

// A tail keeps the end of a worker's stderr, to explain an unexpected exit.
type tail struct {
	mu   sync.Mutex
	text string
}

// tailLimit is how many octets of a worker's stderr are kept. The goroutines of a busy worker fit.
const tailLimit = 1 << 20

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text += string(p)
	if over := len(t.text) - tailLimit; over > 0 {
		t.text = t.text[over:]
	}
	return len(p), nil
}

func (t *tail) whole() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}

// String returns the last line.
func (t *tail) String() string {
	lines := strings.Split(strings.TrimSpace(t.whole()), "\n")
	return lines[len(lines)-1]
}
