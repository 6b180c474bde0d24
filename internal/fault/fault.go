// Package fault holds named points at which a test or the demo can make a process die, stop, wait
// or fail.
//
// A point does nothing unless armed; it costs one atomic load. Only the program itself can arm
// points. The package does not read the environment, so it cannot affect a library user's process
// by accident. Names consist of package, step and side: "consumer.commit.before",
// "job.commit.after".
package fault

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrInjected is the error of a point armed with "fail".
var ErrInjected = errors.New("injected fault")

type action struct {
	do    string
	delay time.Duration
	left  atomic.Int64 // hits to skip before acting; it acts once, at zero
}

var (
	armed atomic.Pointer[map[string]*action]
	mu    sync.Mutex
)

// At marks a point. It returns nil unless the point is armed with "fail".
func At(point string) error {
	points := armed.Load()
	if points == nil {
		return nil
	}
	a, ok := (*points)[point]
	if !ok || a.left.Add(-1) != -1 {
		return nil
	}
	return a.act(point)
}

func (a *action) act(point string) error {
	switch a.do {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // wait for the signal
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		// the signal may reach another thread first; nothing may happen here before it stops the
		// process
		time.Sleep(100 * time.Millisecond)
	case "delay":
		time.Sleep(a.delay)
	case "fail":
		return fmt.Errorf("%w at %s", ErrInjected, point)
	}
	return nil
}

// Arm adds points in the form "point=action[@skip]", separated by commas. An action is kill
// (SIGKILL to this process), stop (SIGSTOP), fail (At returns [ErrInjected]) or delay:DURATION. It
// happens once, after skip hits.
func Arm(spec string) error {
	mu.Lock()
	defer mu.Unlock()
	points := map[string]*action{}
	if old := armed.Load(); old != nil {
		for name, a := range *old {
			points[name] = a
		}
	}
	for _, one := range strings.Split(spec, ",") {
		name, a, err := parse(one)
		if err != nil {
			return err
		}
		points[name] = a
	}
	armed.Store(&points)
	return nil
}

// Disarm disarms all points.
func Disarm() { armed.Store(nil) }

func parse(spec string) (string, *action, error) {
	name, what, ok := strings.Cut(strings.TrimSpace(spec), "=")
	if !ok || name == "" {
		return "", nil, fmt.Errorf("fault %q: want point=action[@skip]", spec)
	}
	what, skip, hasSkip := strings.Cut(what, "@")
	a := &action{}
	if hasSkip {
		n, err := strconv.ParseInt(skip, 10, 64)
		if err != nil || n < 0 {
			return "", nil, fmt.Errorf("fault %q: skip %q is not a count", spec, skip)
		}
		a.left.Store(n)
	}
	do, length, _ := strings.Cut(what, ":")
	a.do = do
	switch do {
	case "kill", "stop", "fail":
	case "delay":
		d, err := time.ParseDuration(length)
		if err != nil || d <= 0 {
			return "", nil, fmt.Errorf("fault %q: delay needs a duration, as in delay:250ms", spec)
		}
		a.delay = d
	default:
		return "", nil, fmt.Errorf("fault %q: unknown action %q (kill, stop, fail, delay:DURATION)", spec, do)
	}
	return name, a, nil
}
