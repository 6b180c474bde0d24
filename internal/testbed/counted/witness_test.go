package counted

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/checker"
)

// told returns a witness with entries one millisecond apart.
func told(t *testing.T, es ...entry) *witness {
	w := newWitness(t)
	began := time.Now()
	for i, e := range es {
		e.At = began.Add(time.Duration(i) * time.Millisecond)
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		w.hear(1, string(text))
	}
	return w
}

func got(pid int, id, key string) entry { return entry{What: received, PID: pid, ID: id, Key: key} }
func did(what string, pid int, id, key string) entry {
	return entry{What: what, PID: pid, ID: id, Key: key}
}

// A message that one process acknowledged and another receives came again. One that the process
// released, or another message of the order, did not.
func TestWitness_CameAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries []entry
		want    int
	}{
		"acknowledged": {[]entry{got(1, "m", "a"), did(acknowledged, 1, "m", "a"), got(2, "m", "a")}, 1},
		"twice":        {[]entry{got(1, "m", "a"), did(acknowledged, 1, "m", "a"), got(2, "m", "a"), got(3, "m", "a")}, 2},
		"given back":   {[]entry{got(1, "m", "a"), did(released, 1, "m", "a"), got(2, "m", "a")}, 0},
		"a copy":       {[]entry{got(1, "m", "a"), did(acknowledged, 1, "m", "a"), got(2, "n", "a")}, 0},
		"another's":    {[]entry{got(2, "m", "a"), did(acknowledged, 2, "m", "a"), got(1, "m", "a")}, 0},
		"before":       {[]entry{got(2, "m", "a"), got(1, "m", "a"), did(acknowledged, 1, "m", "a")}, 0},
	} {
		if n, _, _ := told(t, c.entries...).cameAgain(1); n != c.want {
			t.Errorf("%s: %d came again, want %d", name, n, c.want)
		}
	}
}

// In a log, an acknowledged record may come again if it is behind an unsettled one, but not if it
// is in front of it.
func TestWitness_CameAgainInALog(t *testing.T) {
	t.Parallel()
	in := func(e entry, offset int64) entry {
		e.Log, e.Offset = "log/0", offset
		return e
	}
	w := told(t, in(got(1, "m", "a"), 1), in(got(1, "n", "b"), 2), in(got(1, "o", "c"), 3),
		in(did(acknowledged, 1, "m", "a"), 1), in(did(released, 1, "n", "b"), 2), in(did(acknowledged, 1, "o", "c"), 3),
		in(got(2, "n", "b"), 2), in(got(2, "o", "c"), 3))
	if n, excused, _ := w.cameAgain(1); n != 0 || excused != 1 {
		t.Errorf("%d came again, %d are excused, want 0 and 1", n, excused)
	}
	w.entries["a"] = append(w.entries["a"], in(entry{What: received, PID: 2, ID: "m", Key: "a", At: time.Now().Add(time.Minute)}, 1))
	if n, _, keys := w.cameAgain(1); n != 1 || keys[0] != "a" {
		t.Errorf("%d came again: %q, want a", n, keys)
	}
}

// A record that a process fetched but did not deliver, because an earlier one of its key was in
// flight, also holds the offset. Another process receives it first.
func TestWitness_CameAgainBehindAnUndeliveredRecord(t *testing.T) {
	t.Parallel()
	in := func(e entry, offset int64, late time.Duration) entry {
		e.Log, e.Offset, e.At = "log/0", offset, e.At.Add(late)
		return e
	}
	w := told(t, in(got(1, "m", "a"), 1, 0), in(did(acknowledged, 1, "m", "a"), 1, 0), in(got(1, "o", "c"), 3, 0), in(did(acknowledged, 1, "o", "c"), 3, 0),
		in(got(2, "n", "b"), 2, time.Minute), in(got(2, "o", "c"), 3, time.Minute), in(did(acknowledged, 2, "n", "b"), 2, 2*time.Minute))
	if n, excused, _ := w.cameAgain(1); n != 0 || excused != 1 {
		t.Errorf("%d came again, %d are excused, want 0 and 1", n, excused)
	}
}

// A message that a silent process held was taken over if another process received it, even if the
// silent one acknowledges it later.
func TestWitness_Takeovers(t *testing.T) {
	t.Parallel()
	w := told(t, got(1, "m", "a"), got(2, "m", "a"), got(1, "n", "b"), did(acknowledged, 1, "n", "b"), got(2, "n", "b"), got(2, "o", "c"), got(1, "o", "c"), got(1, "p", "d"))
	if n := w.takeovers(1); n != 2 {
		t.Errorf("%d taken over, want 2", n)
	}
	if !w.holds(1) || told(t, got(1, "m", "a"), did(released, 1, "m", "a")).holds(1) {
		t.Error("a process holds what it has received and not settled, and nothing else")
	}
}

// The order of a log is the order of its offsets, independent of the order of deliveries. Only the
// first publication counts.
func TestWitness_InStore(t *testing.T) {
	t.Parallel()
	at := func(offset int64, number int) entry {
		return entry{What: received, PID: 1, Key: string(rune('a' + number)), Lane: "l", Number: number, Log: "log/0", Offset: offset}
	}
	steps, log := told(t, at(2, 1), at(0, 0), at(3, 0), at(4, 2)).inStore()
	if late := checker.OutOfOrder(steps); !log || len(late) != 0 || len(steps) != 3 {
		t.Errorf("late %v of %v", late, steps)
	}
	steps, _ = told(t, at(0, 1), at(1, 0)).inStore()
	if late := checker.OutOfOrder(steps); len(late) != 1 {
		t.Errorf("late %v of %v, want one", late, steps)
	}
	queue := entry{What: received, PID: 1, Key: "a", Lane: "l"}
	if _, log := told(t, queue).inStore(); log {
		t.Error("a queue is no log")
	}
}

// A story contains processes and messages, and its length is bounded.
func TestWitness_Story(t *testing.T) {
	t.Parallel()
	es := []entry{got(7, "m-1", "a")}
	for range longestStory + 5 {
		es = append(es, did(released, 7, "m-1", "a"))
	}
	lines := told(t, es...).story("a")
	if len(lines) != longestStory+1 || !slices.Contains(lines, "and 6 more") {
		t.Errorf("%q", lines)
	}
}
