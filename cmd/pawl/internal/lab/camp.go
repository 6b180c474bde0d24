package lab

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/fleet"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
)

// A camp is one kind of consumer: its processes, their proxies before the database, and the history
// of each order.
type camp struct {
	name    string
	table   string
	fleet   *fleet.Fleet
	proxies []*wireproxy.Proxy // by worker number - 1

	mu      sync.Mutex
	orders  map[string]*fate
	counts  map[string]int // number of reports by kind
	arrived int            // number of deliveries
	inHand  []map[string]bool
}

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

func newCamp(name, table string, workers int) *camp {
	c := &camp{name: name, table: table, orders: map[string]*fate{}, counts: map[string]int{}}
	for range workers {
		c.inHand = append(c.inHand, map[string]bool{})
	}
	return c
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

// ends are the reports after which a worker no longer handles the order.
var ends = []string{"succeeded", "duplicate_skipped", "retryable", "stored", "conflict", "failed", "wasted_work", seen, markRemoved, effect}

// sentences are the texts of the reports.
var sentences = map[string]string{
	began:               "calls the handler",
	"succeeded":         "took effect: the row and its memory committed together",
	"duplicate_skipped": "seen before: acknowledged without work",
	"conflict":          "another process is handling it: released",
	"retryable":         "the attempt failed: it will be retried",
	"stored":            "stored in the database for a retry",
	"suspect":           "it was being handled when a process died: stored, to run alone",
	"commit_unknown":    "the reply to COMMIT was lost: asks the database",
	"wasted_work":       "its transaction was lost: retried",
	"failed":            "a dead letter",
	"ack_failed":        "could not acknowledge: the message will be redelivered",
	"error":             "the database did not answer",
	seen:                "the table says that it was handled: acknowledged",
	markRemoved:         "the handler failed: removes the mark",
	effect:              "took effect: wrote the row",
	acked:               "acknowledged",
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
		c.noteLocked(e.Key, number, said)
	}
	switch {
	case e.Kind == began:
		c.inHand[number-1][e.Key] = true
	case slices.Contains(ends, e.Kind):
		delete(c.inHand[number-1], e.Key)
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
}

// worker returns the process with this number, or nil while it is being replaced.
func (c *camp) worker(number int) *fleet.Worker {
	for _, w := range c.fleet.Workers() {
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
	return f.effects == 0 && !f.open() && time.Since(f.closed) > certainly && !slices.ContainsFunc(c.inHand, func(held map[string]bool) bool { return held[key] })
}

// A tally is the state of a camp.
type tally struct {
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
	t.Delivered, t.Absorbed = c.arrived, c.counts["duplicate_skipped"]+c.counts[seen]
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
	t := trace{Camp: title(c.name), Key: key, Effects: f.effects, Lines: []traceLine{}}
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
	default:
		t.Verdict = "on its way"
	}
	return t
}

func round(seconds float64) float64 { return float64(int64(seconds*1000)) / 1000 }

func title(name string) string {
	if name == byHand {
		return "by hand"
	}
	return strings.ToUpper(name[:1]) + name[1:]
}
