package demo

import (
	"strings"
	"sync"

	"github.com/pawl-go/pawl/internal/testbed/fleet"
)

// WorkerCommand is the hidden command under which the binary runs as a worker.
const WorkerCommand = "demo-worker"

// A crew is the workers of a run, and what they have reported.
type crew struct {
	*fleet.Fleet
	config workerConfig
	events tally
	said   func(line string) // what workers want told; nil: it is dropped
}

func newCrew(executable string, config workerConfig) *crew {
	c := &crew{config: config}
	c.Fleet = fleet.New(executable, WorkerCommand, func(int) any { return c.config }, c.report)
	return c
}

// report reads a line of a worker: an event, or what it wants told.
func (c *crew) report(_ int, line string) {
	if text, found := strings.CutPrefix(line, sayPrefix); found && c.said != nil {
		c.said(text)
		return
	}
	c.events.add(line)
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
