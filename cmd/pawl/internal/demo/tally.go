package demo

import (
	"strings"
	"sync"

	"github.com/pawl-go/pawl/internal/testbed/fleet"
)

// WorkerCommand is the hidden command of the worker processes.
const WorkerCommand = "demo-worker"

// A crew holds the workers of a run and their reports.
type crew struct {
	*fleet.Fleet
	config workerConfig
	events tally
	said   func(line string) // receives lines to be printed; nil: they are dropped
}

func newCrew(executable string, config workerConfig) *crew {
	c := &crew{config: config}
	c.Fleet = fleet.New(executable, WorkerCommand, func(int) any { return c.config }, c.report)
	return c
}

func (c *crew) report(_ int, line string) {
	if text, found := strings.CutPrefix(line, sayPrefix); found && c.said != nil {
		c.said(text)
		return
	}
	c.events.add(line)
}

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
