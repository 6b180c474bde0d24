package counted

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/checker"
)

// A witness reads the journals of all worker processes.
type witness struct {
	t testing.TB

	mu         sync.Mutex
	entries    map[string][]entry // by key of the order
	workers    map[int]int        // number of a worker by its process id
	deliveries int
	again      int            // of them, orders that had come before
	latest     []entry        // all of them
	events     map[string]int // by kind
	lost       int            // receipts swallowed and deliveries cut off
	arrivals   []entry        // first deliveries, in the order in which they were told
	records    map[string]map[int64]entry
	released   int
	held       map[int]map[string]bool // messages that a process has received and not settled
	troubles   []string
}

func newWitness(t testing.TB) *witness {
	return &witness{t: t, entries: map[string][]entry{}, workers: map[int]int{}, events: map[string]int{}, held: map[int]map[string]bool{}, records: map[string]map[int64]entry{}}
}

// hear takes one line of a worker's standard output.
func (w *witness) hear(worker int, line string) {
	var e entry
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		w.t.Logf("worker %d: %s", worker, line)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.workers[e.PID] = worker
	switch e.What {
	case received:
		w.received(e)
	case acknowledged:
		delete(w.held[e.PID], e.ID)
	case released:
		delete(w.held[e.PID], e.ID)
		w.released++
	case swallowed, cutOff:
		w.lost += max(1, e.Count)
	default:
		w.events[e.What] += max(1, e.Count)
		if e.Text != "" && len(w.troubles) < 1000 {
			w.troubles = append(w.troubles, fmt.Sprintf("%s worker %d: %s: %s", e.At.Format("15:04:05.000"), worker, e.What, e.Text))
		}
	}
	if e.Key != "" {
		w.entries[e.Key] = append(w.entries[e.Key], e)
	}
}

func (w *witness) received(e entry) {
	w.deliveries++
	w.latest = append(w.latest, e)
	if w.held[e.PID] == nil {
		w.held[e.PID] = map[string]bool{}
	}
	w.held[e.PID][e.ID] = true
	known := slices.ContainsFunc(w.entries[e.Key], func(other entry) bool { return other.What == received })
	if known {
		w.again++
	} else {
		w.arrivals = append(w.arrivals, e)
	}
	if e.Log != "" {
		if w.records[e.Log] == nil {
			w.records[e.Log] = map[int64]entry{}
		}
		w.records[e.Log][e.Offset] = e
	}
}

// count returns how many events of a kind came.
func (w *witness) count(kind pawl.EventKind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[string(kind)]
}

// counts returns deliveries, those of orders that had come before, and what the run lost on purpose.
func (w *witness) counts() (deliveries, again, lost int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deliveries, w.again, w.lost
}

// givenBack counts deliveries that processes gave back to their source.
func (w *witness) givenBack() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.released
}

// holds reports whether a process has a message that it has not settled.
func (w *witness) holds(pid int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held[pid]) > 0
}

// cameAgain counts the deliveries of messages that the process had acknowledged before, and names some of their orders. A message that was sent once has
// no reason to come again after that. Of a log one that stands behind an unsettled one has: the offset stays in front of that. It is excused.
func (w *witness) cameAgain(pid int) (n, excused int, keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	unsettled := w.unsettled(pid)
	for key, es := range w.entries {
		done := slices.IndexFunc(es, func(e entry) bool { return e.What == acknowledged && e.PID == pid })
		if done < 0 {
			continue
		}
		for _, e := range es {
			// The lines of two processes may reach us in another order than they were written in.
			if e.What != received || e.ID != es[done].ID || !e.At.After(es[done].At) {
				continue
			}
			if lowest, found := unsettled[e.Log]; found && e.Offset > lowest {
				excused++
				continue
			}
			n++
			keys = append(keys, key)
		}
	}
	return n, excused, keys
}

// unsettled returns the lowest offset of each log that the process has received and not acknowledged, or that no process had acknowledged when this
// one was heard of last.
func (w *witness) unsettled(pid int) map[string]int64 {
	lowest := map[string]int64{}
	open := func(e entry) {
		if offset, found := lowest[e.Log]; !found || e.Offset < offset {
			lowest[e.Log] = e.Offset
		}
	}
	last := w.lastOf(pid)
	for _, es := range w.entries {
		left := map[string]entry{}  // by message: what the process received and did not acknowledge
		never := map[string]entry{} // what no process had acknowledged when this one ended: it may have been fetched, and have waited behind another of its key
		for _, e := range es {
			switch {
			case e.Log == "":
			case e.What == received:
				if e.PID == pid {
					left[e.ID] = e
				}
				if _, settled := never[e.ID]; !settled {
					never[e.ID] = e
				}
			case e.What == acknowledged:
				if e.PID == pid {
					delete(left, e.ID)
				}
				if !e.At.After(last) {
					never[e.ID] = entry{}
				}
			}
		}
		for _, e := range left {
			open(e)
		}
		for _, e := range never {
			if e.Log != "" {
				open(e)
			}
		}
	}
	return lowest
}

// lastOf is when a process was heard of last.
func (w *witness) lastOf(pid int) (last time.Time) {
	for _, es := range w.entries {
		for _, e := range es {
			if e.PID == pid && e.At.After(last) {
				last = e.At
			}
		}
	}
	return last
}

// takeovers counts orders that one process had received when another one received them too.
func (w *witness) takeovers(pid int) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, es := range w.entries {
		first := slices.IndexFunc(es, func(e entry) bool { return e.What == received && e.PID == pid })
		if first >= 0 && slices.ContainsFunc(es, func(e entry) bool { return e.What == received && e.PID != pid && e.At.After(es[first].At) }) {
			n++
		}
	}
	return n
}

// receivedSince returns the orders that any process received after a moment.
func (w *witness) receivedSince(moment time.Time) (keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.latest) - 1; i >= 0 && w.latest[i].At.After(moment); i-- {
		keys = append(keys, w.latest[i].Key)
	}
	return keys
}

// inStore orders what was delivered as its log holds it. Without a log it is the order in which it was delivered first.
func (w *witness) inStore() (steps []checker.Step, log bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.records) == 0 {
		for _, e := range w.arrivals {
			steps = append(steps, checker.Step{Line: e.Lane, Number: e.Number})
		}
		return steps, false
	}
	for _, records := range w.records {
		for _, offset := range slices.Sorted(maps.Keys(records)) {
			e := records[offset]
			steps = append(steps, checker.Step{Line: e.Lane, Number: e.Number})
		}
	}
	return firsts(steps), true
}

// firsts leaves out what came before.
func firsts(steps []checker.Step) (first []checker.Step) {
	seen := map[checker.Step]bool{}
	for _, s := range steps {
		if !seen[s] {
			seen[s] = true
			first = append(first, s)
		}
	}
	return first
}

// below returns the keys of the records of a log that were delivered, from one offset to before another.
func (w *witness) below(log string, from, to int64) map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := map[string]int64{}
	for offset, e := range w.records[log] {
		if offset >= from && offset < to {
			keys[e.Key] = offset
		}
	}
	return keys
}

// longestStory bounds the lines of one order.
const longestStory = 40

// story lists what processes saw of an order.
func (w *witness) story(key string) (lines []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, e := range w.entries[key] {
		if i == longestStory {
			return append(lines, fmt.Sprintf("and %d more", len(w.entries[key])-i))
		}
		line := fmt.Sprintf("%s worker %d pid %d: %s", e.At.Format("15:04:05.000"), w.workers[e.PID], e.PID, e.What)
		if e.ID != "" {
			line += fmt.Sprintf(" message %s, receive %d", e.ID, e.Receives)
		}
		if e.Log != "" {
			line += fmt.Sprintf(", %s offset %d", e.Log, e.Offset)
		}
		if e.Text != "" {
			line += ": " + e.Text
		}
		lines = append(lines, line)
	}
	return lines
}

// lastTroubles are the last things that went wrong anywhere.
func (w *witness) lastTroubles(n int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.troubles[max(0, len(w.troubles)-n):])
}
