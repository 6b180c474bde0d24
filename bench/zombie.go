package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// The zombie is a process that claims a job and is frozen by SIGSTOP past every lease, after its
// handler has written the row or just before. Meanwhile a successor in this process has time to
// finish the job. Then the zombie is woken and continues. The row counts how many rows the job has
// written.

const (
	frozenVariant, frozenURL = "PAWL_BENCH_FROZEN", "PAWL_BENCH_URL"

	zombieLease    = time.Second      // of the frozen worker; also River's rescue time
	zombiePatience = 15 * time.Second // for the successor; River's takes about ten seconds
)

// zombie returns the measure of one variant. frozen.go has the frozen process's program.
func zombie(variant string) measure {
	return func(ctx context.Context, b *bed, _ scale) (r Round, err error) {
		ctx, cancel := context.WithTimeout(ctx, 2*zombiePatience)
		defer cancel()
		if err := b.enqueue(ctx, payload{At: time.Now().UnixNano()}); err != nil {
			return r, err
		}
		z, err := raise(ctx, variant, b.url)
		if err != nil {
			return r, err
		}
		defer z.bury()
		if err := z.freeze(); err != nil {
			return r, err
		}
		ended, stop, err := b.succeed(ctx, variant)
		if err != nil {
			return r, err
		}
		defer stop()
		finished := within(ended, zombiePatience)
		said, err := z.wake()
		if err != nil {
			return r, err
		}
		if !finished {
			within(ended, 5*time.Second) // it may still get the job
		}
		err = b.pool.QueryRow(ctx, "select count(*) from effect").Scan(&r.Value)
		r.Count, r.Said = 1, story(finished, said)
		return r, err
	}
}

func story(finished bool, said string) string {
	if finished {
		return "the successor finished the job; the zombie " + said
	}
	return fmt.Sprintf("the successor did not get the job within %v; the zombie %s", zombiePatience, said)
}

// succeed starts the worker that takes the job over.
func (b *bed) succeed(ctx context.Context, variant string) (ended chan struct{}, stop func(), err error) {
	ended = make(chan struct{}, 8)
	t := task{form: effect, polite: true, rescue: zombieLease, ended: func(int) { ended <- struct{}{} }}
	if variant == "loop/lease" {
		ctx, cancel := context.WithCancel(ctx)
		go leaseLoop(ctx, b.pool, func() {}, t.ended)
		return ended, cancel, nil
	}
	// River looks for stuck jobs when it starts, and then only after half a minute.
	time.Sleep(2 * zombieLease)
	stop, err = b.work(ctx, t)
	return ended, stop, err
}

func within(ended chan struct{}, d time.Duration) bool {
	select {
	case <-ended:
		return true
	case <-time.After(d):
		return false
	}
}

// A frozen is the process that is frozen.
type frozen struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	in    *os.File
}

// raise starts the process and waits until its handler is at the point to freeze.
func raise(ctx context.Context, variant, url string) (*frozen, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	z := &frozen{cmd: exec.CommandContext(ctx, program), in: write}
	z.cmd.Env = append(os.Environ(), frozenVariant+"="+variant, frozenURL+"="+url)
	z.cmd.Stdin, z.cmd.Stderr = in, os.Stderr
	out, err := z.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	z.lines = bufio.NewScanner(out)
	if err := z.cmd.Start(); err != nil {
		return nil, err
	}
	_ = in.Close()
	_, err = z.hear("inside")
	return z, err
}

// hear returns the rest of the next line that begins with word.
func (z *frozen) hear(word string) (rest string, err error) {
	for z.lines.Scan() {
		if rest, ok := strings.CutPrefix(z.lines.Text(), word); ok {
			return strings.TrimSpace(rest), nil
		}
	}
	return "", fmt.Errorf("the process to freeze ended before it said %q", word)
}

func (z *frozen) freeze() error { return z.cmd.Process.Signal(syscall.SIGSTOP) }

// wake continues the process and returns the outcome of its handler.
func (z *frozen) wake() (said string, err error) {
	if _, err := z.in.WriteString("go on\n"); err != nil {
		return "", err
	}
	if err := z.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return "", err
	}
	return z.hear("said")
}

func (z *frozen) bury() {
	_ = z.cmd.Process.Kill()
	_ = z.cmd.Wait()
	_ = z.in.Close()
}
