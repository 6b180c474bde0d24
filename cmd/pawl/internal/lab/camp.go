package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/fleet"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
)

// A camp is the workers of one way: their processes, their proxies before the database, and the
// history of each order.
type camp struct {
	way
	proxies []*wireproxy.Proxy // by worker number - 1; urls are theirs
	urls    []string

	mu        sync.Mutex
	fleet     *fleet.Fleet // nil until it first stands
	orders    map[string]*fate
	counts    map[string]int // number of reports by kind
	arrived   int            // number of deliveries
	inHand    []map[string]holding
	takeovers []takeover // the latest last
}

// A holding is an order that a worker is handling.
type holding struct {
	calls int   // of the handler; one worker may handle two copies at once
	fence int64 // 0: none
	works bool  // it has claimed the order, or found no mark
}

// A takeover is an order that two workers work on: the second began before the first had ended.
type takeover struct {
	Key    string `json:"key"`
	First  int    `json:"first"` // number of the worker
	Fence  int64  `json:"fence"` // 0: none
	Second int    `json:"second"`
	Newer  int64  `json:"newer"` // the fence of the second
	Late   string `json:"late"`  // what became of the first worker's write
}

// FenceText and NewerText are the fences as texts.
func (t takeover) FenceText() string { return fenceText(t.Fence) }
func (t takeover) NewerText() string { return fenceText(t.Newer) }

func fenceText(fence int64) string {
	if fence == 0 {
		return "none"
	}
	return fmt.Sprint(fence)
}

// Class is the style of Late.
func (t takeover) Class() string {
	return map[string]string{lateWritten: "bad", lateRefused: "good"}[t.Late]
}

// The texts of takeover.Late.
const (
	lateNotYet  = "not yet"
	lateRefused = "refused"
	lateWritten = "written"
	lateNone    = "given up"
	lateKilled  = "none: killed"
)

// keptTakeovers is the number of takeovers on the page.
const keptTakeovers = 5

// A fate is the history of one order in one camp.
type fate struct {
	copies  int            // messages sent
	deleted map[int64]bool // numbers of the copies that the queue deleted
	closed  time.Time      // when the last copy was deleted; zero: some are left
	effects int            // number of rows
	waits   bool           // stored in the database for a retry
	lines   []line         // the latest reports
}

// A line is one report of a worker about an order, or a fault that hit it.
type line struct {
	At     time.Time
	Worker int // 0: the queue
	Text   string
}

const keptLines = 40

func newCamp(w way, workers int) *camp {
	c := &camp{way: w, orders: map[string]*fate{}, counts: map[string]int{}}
	for range workers {
		c.inHand = append(c.inHand, map[string]holding{})
	}
	return c
}

// crew returns the camp's processes, or nil if it has never stood.
func (c *camp) crew() *fleet.Fleet {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fleet
}

// of returns the fate of an order. The caller holds mu.
func (c *camp) of(key string) *fate {
	f := c.orders[key]
	if f == nil {
		f = &fate{deleted: map[int64]bool{}}
		c.orders[key] = f
	}
	return f
}

// had reports whether the order was sent to this camp before.
func (c *camp) had(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.orders[key] != nil
}

func (c *camp) sent(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.of(key)
	f.copies++
	f.closed = time.Time{}
}

// delivered and wasDeleted record the queue's events.
func (c *camp) delivered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrived++
}

func (c *camp) wasDeleted(key string, number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.of(key)
	if f.deleted[number] = true; len(f.deleted) >= f.copies {
		f.closed = time.Now()
	}
}

func (c *camp) note(key string, worker int, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteLocked(key, worker, text)
}

func (c *camp) noteLocked(key string, worker int, text string) {
	f := c.of(key)
	if f.lines = append(f.lines, line{time.Now(), worker, text}); len(f.lines) > keptLines {
		f.lines = f.lines[1:]
	}
}

// ends are the reports after which a worker no longer handles the order. Each call of a handler has
// one.
var ends = []string{"succeeded", "retryable", "failed", "stale_write_refused", "commit_unknown", "wasted_work", seen, held, failed, effect}

// sentences are the texts of the reports.
var sentences = map[string]string{
	began:                 "gets the order",
	string(started):       "works",
	string(written):       "writes the row, and does not commit yet",
	string(committed):     "has committed the row",
	"succeeded":           "took effect: row, memory and fence in one transaction",
	"duplicate_skipped":   "seen before: acknowledged without work",
	"conflict":            "another process is handling it: released",
	"retryable":           "the attempt failed: it will be retried",
	"stored":              "stored in the database, and acknowledged",
	"suspect":             "it was being handled when a process died: it begins alone",
	"commit_unknown":      "the reply to COMMIT was lost: asks the database",
	"stale_write_refused": "its late write is refused, and rolled back",
	"wasted_work":         "its transaction was lost: retried",
	"failed":              "a dead letter",
	"ack_failed":          "could not acknowledge: the message will be redelivered",
	"error":               "the database did not answer",
	seen:                  "it was handled before: acknowledged",
	held:                  "another worker has it: it will be redelivered",
	failed:                "the handler failed: it will be redelivered",
	effect:                "took effect",
	acked:                 "acknowledged",
}

func (c *camp) report(number int, text string) {
	var e entry
	if json.Unmarshal([]byte(text), &e) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[e.Kind]++
	if said := sentences[e.Kind]; said != "" {
		if e.Fence > 0 {
			said = fmt.Sprintf("%s (fence %d)", said, e.Fence)
		}
		c.noteLocked(e.Key, number, said)
	}
	switch {
	case e.Kind == began:
		h := c.inHand[number-1][e.Key]
		c.inHand[number-1][e.Key] = holding{h.calls + 1, e.Fence, h.works}
	case e.Kind == string(started):
		c.works(number, e.Key)
	case slices.Contains(ends, e.Kind):
		c.ends(number, e)
	}
}

// works records that a worker works on an order, and whether another one does so already. The
// caller holds mu.
func (c *camp) works(number int, key string) {
	own := c.inHand[number-1][key]
	own.works = true
	c.inHand[number-1][key] = own
	for i, all := range c.inHand {
		if first := all[key]; first.works && i != number-1 {
			c.takeovers = append(c.takeovers, takeover{Key: key, First: i + 1, Fence: first.fence, Second: number, Newer: own.fence, Late: lateNotYet})
		}
	}
	c.takeovers = c.takeovers[max(0, len(c.takeovers)-keptTakeovers):]
}

// ends records that a worker no longer handles an order. The caller holds mu.
func (c *camp) ends(number int, e entry) {
	h := c.inHand[number-1][e.Key]
	if h.calls--; h.calls > 0 {
		c.inHand[number-1][e.Key] = h
	} else {
		delete(c.inHand[number-1], e.Key)
	}
	switch e.Kind {
	case "stale_write_refused":
		c.late(number, e.Key, lateRefused)
	case "succeeded", effect:
		c.late(number, e.Key, lateWritten)
	case seen, held: // another copy of the order
	default:
		c.late(number, e.Key, lateNone)
	}
}

// late records what became of the write of a worker whose order was taken over; key may be "" for
// all its orders. The caller holds mu.
func (c *camp) late(number int, key, what string) {
	for i, t := range c.takeovers {
		if t.First == number && t.Late == lateNotYet && (key == "" || t.Key == key) {
			c.takeovers[i].Late = what
		}
	}
}

// holds returns the orders that a worker is handling; for worker 0, those of all workers.
func (c *camp) holds(number int) (keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, held := range c.inHand {
		if number == 0 || i == number-1 {
			keys = append(keys, slices.Sorted(maps.Keys(held))...)
		}
	}
	return keys
}

func (c *camp) died(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.inHand[number-1])
	c.late(number, "", lateKilled)
}

// worker returns the process with this number, or nil while it is being replaced.
func (c *camp) worker(number int) *fleet.Worker {
	for _, w := range c.crew().Workers() {
		if w.Number == number {
			return w
		}
	}
	return nil
}

// certainly is how long the last message of an order must be gone before the order counts as lost.
// A worker may still be writing its row.
const certainly = 5 * time.Second

// open reports whether the queue or the database still has the order.
func (f *fate) open() bool { return f.closed.IsZero() || f.waits }

// lost reports whether the order can no longer get its row. A frozen worker may still write it. The
// caller holds mu.
func (c *camp) lost(key string, f *fate) bool {
	return f.effects == 0 && !f.open() && time.Since(f.closed) > certainly && !c.heldLocked(key)
}

// heldLocked reports whether a worker is handling the order. The caller holds mu.
func (c *camp) heldLocked(key string) bool {
	return slices.ContainsFunc(c.inHand, func(all map[string]holding) bool { return all[key].calls > 0 })
}

// A tally is the state of a camp.
type tally struct {
	Orders    int      `json:"orders"` // sent to this camp, each counted once
	Delivered int      `json:"delivered"`
	Effects   int      `json:"effects"`
	Absorbed  int      `json:"absorbed"` // deliveries recognised as duplicates
	Doubled   int      `json:"doubled"`
	Lost      int      `json:"lost"`
	Open      int      `json:"open"`     // orders in the queue, or with a retry in the database
	Examples  []string `json:"examples"` // keys of doubled or lost orders
}

// take computes the tally. effects has the rows of each order, waiting the orders with a retry in
// the database.
func (c *camp) take(effects map[string]int, waiting map[string]bool) (t tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Orders, t.Delivered, t.Absorbed = len(c.orders), c.arrived, c.counts["duplicate_skipped"]+c.counts[seen]
	for key, n := range effects {
		c.of(key).effects = n
	}
	for key, f := range c.orders {
		f.waits = waiting[key]
		t.Effects += f.effects
		switch {
		case f.effects > 1:
			t.Doubled++
			t.Examples = append(t.Examples, key)
		case c.lost(key, f):
			t.Lost++
			t.Examples = append(t.Examples, key)
		}
		if f.open() {
			t.Open++
		}
	}
	slices.Sort(t.Examples)
	if len(t.Examples) > 5 {
		t.Examples = t.Examples[len(t.Examples)-5:]
	}
	return t
}

type trace struct {
	Camp    string      `json:"camp"`
	Key     string      `json:"key"`
	Lines   []traceLine `json:"lines"`
	Effects int         `json:"effects"`
	Verdict string      `json:"verdict"`
}

type traceLine struct {
	After  float64 `json:"after"` // seconds after the fault; negative: before it
	Worker int     `json:"worker"`
	Text   string  `json:"text"`
}

// traced returns the history of one order, with times relative to around.
func (c *camp) traced(key string, around time.Time) trace {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.of(key)
	t := trace{Camp: c.Title, Key: key, Effects: f.effects, Lines: []traceLine{}}
	for _, l := range f.lines {
		t.Lines = append(t.Lines, traceLine{round(l.At.Sub(around).Seconds()), l.Worker, l.Text})
	}
	switch {
	case f.effects > 1:
		t.Verdict = "doubled"
	case f.effects == 1:
		t.Verdict = "one effect"
	case c.lost(key, f):
		t.Verdict = "lost"
	case !f.closed.IsZero():
		t.Verdict = "acknowledged, no row yet"
	default:
		t.Verdict = "on its way"
	}
	return t
}

func round(seconds float64) float64 { return float64(int64(seconds*1000)) / 1000 }
