package lab

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// A state is the content of the page, sent to the browser as JSON.
type state struct {
	Sent     int           `json:"sent"`
	Paused   bool          `json:"paused"`
	Seconds  float64       `json:"seconds"` // since the lab was opened
	Quiet    float64       `json:"quiet"`   // seconds since the last change
	Database string        `json:"database"`
	Camps    []campState   `json:"camps"`
	Presses  []pressReport `json:"presses"` // the latest first
}

type campState struct {
	Name      string        `json:"name"`
	Title     string        `json:"title"`
	Workers   []workerState `json:"workers"`
	Takeovers []takeover    `json:"takeovers"` // the latest first
	tally
}

type workerState struct {
	Number int    `json:"number"`
	PID    int    `json:"pid"`
	State  string `json:"state"`
	InHand int    `json:"in_hand"`
	// LeaseMS is the rest of its lease in the database, negative after the lease has expired. Nil
	// means no lease.
	LeaseMS *int64 `json:"lease_ms"`
}

// every is the interval of observations.
const every = 250 * time.Millisecond

// observe updates the state at intervals until ctx ends.
func (l *lab) observe(ctx context.Context) {
	var moved time.Time
	var before [3]int
	for ctx.Err() == nil {
		s := l.look(ctx)
		now := [3]int{s.Sent}
		for _, c := range s.Camps {
			now[1], now[2] = now[1]+c.Delivered, now[2]+c.Effects
		}
		if now != before {
			before, moved = now, time.Now()
		}
		s.Quiet = round(time.Since(moved).Seconds())
		l.mu.Lock()
		l.state = s
		close(l.changed)
		l.changed = make(chan struct{})
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

func (l *lab) now() state {
	s, _ := l.watch()
	return s
}

func (l *lab) watch() (state, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.changed
}

// look reads the database and the camps. If the database does not respond, the old values stay.
func (l *lab) look(ctx context.Context) state {
	s := state{Seconds: round(time.Since(l.began).Seconds()), Database: "up"}
	l.mu.Lock()
	s.Sent, s.Paused = l.sent, l.paused || l.sent >= mostOrders
	if l.down {
		s.Database = "being restarted"
	}
	old := map[string]tally{}
	for _, c := range l.state.Camps {
		old[c.Name] = c.tally
	}
	presses := append([]press(nil), l.presses...)
	l.mu.Unlock()
	leases, err := l.leases(ctx)
	if err != nil && s.Database == "up" {
		s.Database = "does not answer"
	}
	for _, c := range l.standing() {
		one := campState{Name: c.Name, Title: c.Title, Workers: c.workers(leases), Takeovers: c.takenOver(), tally: old[c.Name]}
		if effects, waiting, err := l.effects(ctx, c); err == nil {
			one.tally = c.take(effects, waiting)
		}
		s.Camps = append(s.Camps, one)
	}
	for i := len(presses) - 1; i >= 0; i-- {
		s.Presses = append(s.Presses, l.reported(presses[i]))
	}
	return s
}

// queryLimit is the timeout of one query.
const queryLimit = 2 * time.Second

// effects returns the rows of each order of a camp, and the orders with a retry in the database.
func (l *lab) effects(ctx context.Context, c *camp) (rows map[string]int, waiting map[string]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	rows, waiting = map[string]int{}, map[string]bool{}
	var key string
	var n int
	// the error is also in found
	found, _ := l.pool.Query(ctx, "select e.key, pg_catalog.count(*) from lab.effect as e where e.way operator(pg_catalog.=) $1 group by e.key", c.Name)
	if _, err = pgx.ForEachRow(found, []any{&key, &n}, func() error { rows[key] = n; return nil }); err != nil || c.Name != withPawl {
		return rows, waiting, err
	}
	found, _ = l.pool.Query(ctx, "select j.headers operator(pg_catalog.->>) 'pawl-key' from pawl.job as j where j.queue operator(pg_catalog.=) $1", "inbox/"+consumerName)
	_, err = pgx.ForEachRow(found, []any{&key}, func() error { waiting[key] = true; return nil })
	return rows, waiting, err
}

// leases returns the rest of the leases of Pawl's workers, by process id.
func (l *lab) leases(ctx context.Context) (left map[int]time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	left = map[int]time.Duration{}
	var pid int
	var ms int64
	found, _ := l.pool.Query(ctx, `select pg_catalog.substring(w.name, '/([0-9]+)')::int,
       (extract(epoch from w.seen_at operator(pg_catalog.+) w.lease operator(pg_catalog.-) pg_catalog.clock_timestamp()) operator(pg_catalog.*) 1000)::bigint
  from pawl.worker as w
 where w.name operator(pg_catalog.~) '/[0-9]+' and pg_catalog.isfinite(w.seen_at)`)
	_, err = pgx.ForEachRow(found, []any{&pid, &ms}, func() error { left[pid] = time.Duration(ms) * time.Millisecond; return nil })
	return left, err
}

func (c *camp) workers(leases map[int]time.Duration) []workerState {
	all := make([]workerState, len(c.proxies))
	for i := range all {
		all[i] = workerState{Number: i + 1, State: "starting"}
	}
	for _, w := range c.crew().Workers() {
		one := workerState{Number: w.Number, PID: w.PID(), State: c.crew().State(w), InHand: len(c.holds(w.Number))}
		if left, known := leases[w.PID()]; known && c.Name == withPawl {
			ms := left.Milliseconds()
			one.LeaseMS = &ms
		}
		all[w.Number-1] = one
	}
	return all
}

// takenOver returns the takeovers, the latest first.
func (c *camp) takenOver() []takeover {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := append([]takeover{}, c.takeovers...)
	slices.Reverse(all)
	return all
}
