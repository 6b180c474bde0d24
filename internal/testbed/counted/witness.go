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
	again      int            // deliveries of orders that were delivered before
	latest     []entry        // all entries
	events     map[string]int // by kind
	lost       int            // dropped receipts and deliveries
	arrivals   []entry        // first deliveries, in the order in which they were reported
	records    map[string]map[int64]entry
	released   int
	held       map[int]map[string]bool // received and unsettled messages by process
	troubles   []string
}

func newWitness(t testing.TB) *witness {
	return &witness{t: t, entries: map[string][]entry{}, workers: map[int]int{}, events: map[string]int{}, held: map[int]map[string]bool{}, records: map[string]map[int64]entry{}}
}

// hear parses one line of a worker's standard output.
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

// count returns the number of events of a kind.
func (w *witness) count(kind pawl.EventKind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[string(kind)]
}

// counts returns the deliveries, the redelivered orders, and what the run dropped on purpose.
func (w *witness) counts() (deliveries, again, lost int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deliveries, w.again, w.lost
}

// givenBack counts deliveries that processes released to their source.
func (w *witness) givenBack() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.released
}

// holds reports whether a process has an unsettled message.
func (w *witness) holds(pid int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held[pid]) > 0
}

// cameAgain counts redeliveries of messages that the process had acknowledged, and returns the keys
// of their orders. A message that was sent once must not be redelivered after its acknowledgement.
// In a log, a record behind an unsettled one may be, because the committed offset stays in front of
// that. Such redeliveries are counted in excused.
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
			// Lines of two processes may arrive in another order than they were written, so times
			// are compared.
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

// unsettled returns the lowest unsettled offset of each log when the process was last heard of. A
// record is unsettled if this process received it and did not acknowledge it, or if no process had
// acknowledged it by then.
func (w *witness) unsettled(pid int) map[string]int64 {
	lowest := map[string]int64{}
	open := func(e entry) {
		if offset, found := lowest[e.Log]; !found || e.Offset < offset {
			lowest[e.Log] = e.Offset
		}
	}
	last := w.lastOf(pid)
	for _, es := range w.entries {
		left := map[string]entry{} // received by the process and not acknowledged, by message
		// never has the records that no process had acknowledged when this one ended. It may have
		// fetched such a record without delivering it, behind another of its key.
		never := map[string]entry{}
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

// lastOf returns the time of a process's last entry.
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

// takeovers counts orders that another process received after this one had.
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

// receivedSince returns the keys of the orders received after a moment.
func (w *witness) receivedSince(moment time.Time) (keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.latest) - 1; i >= 0 && w.latest[i].At.After(moment); i-- {
		keys = append(keys, w.latest[i].Key)
	}
	return keys
}

// inStore returns deliveries in the order of their log. Without a log, it returns them in the order
// of first delivery.
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

// firsts drops repeated steps.
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

// below returns the delivered records of a log with offsets in [from, to), as offsets by key.
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

// longestStory bounds the lines of one order's story.
const longestStory = 40

// story lists what processes observed of an order.
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

// lastTroubles returns the last n problems of all processes.
func (w *witness) lastTroubles(n int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.troubles[max(0, len(w.troubles)-n):])
}
