package lab

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// A way is one implementation of a worker. Those by hand leak, and Pawl's does not. This table is
// the only list of them: the page, the guide and the tests read it.
type way struct {
	Name  string // also of its queue
	Title string
	About string // what a worker does, in one sentence
	Leaks []leak // what the buttons break; the other buttons break nothing
	// handle handles an order by hand. Nil for Pawl.
	handle func(ctx context.Context, h *hand, key string) error
	// tend, if any, runs in each worker several times in a lease.
	tend func(ctx context.Context, h *hand) error
}

// A leak is a button that breaks a way if it is pressed at a certain moment.
type leak struct {
	Button  string // the name of a fault
	At      moment
	Outcome outcome
	Why     string
}

// Title is the title of the leak's button in the matrix.
func (l leak) Title() string {
	for _, b := range columns() {
		if b.Name == l.Button {
			return b.Title
		}
	}
	return l.Button
}

// An outcome is what happened to an order. The zero outcome is one effect.
type outcome string

const (
	fine    outcome = ""
	lost    outcome = "lost"
	doubled outcome = "doubled"
)

// String returns the word of the page.
func (o outcome) String() string {
	if o == fine {
		return "fine"
	}
	return string(o)
}

// A moment is a place in a worker. The test stops the process there, and presses the button.
type moment string

const (
	started   moment = "started"   // the order was looked up or claimed; the work has not begun
	written   moment = "written"   // the row was written, and its transaction is open
	replying  moment = "replying"  // the row is committed, and the reply to COMMIT has not arrived
	committed moment = "committed" // the row is committed, and the way goes on
)

// withPawl is the name of Pawl's way, and byDefault that of the way beside it at first.
const (
	withPawl  = "pawl"
	byDefault = "insert-first"
)

var ways = []way{
	{Name: "select-then-act", Title: "SELECT then act",
		About: "It looks for the order in a table of processed messages. If it is absent, it works, and commits its row and the mark together.",
		Leaks: []leak{
			{"freeze", started, doubled, "The order is delivered again meanwhile, and has no mark yet. The frozen worker has looked already, and writes too."},
			{"duplicates", started, doubled, "Two copies are looked up at once, and neither finds a mark."},
		}, handle: selectThenAct},
	{Name: "insert-first", Title: "INSERT first",
		About: "It inserts the mark, commits it, and then works. If that fails, it removes the mark again.",
		Leaks: []leak{
			{"kill", started, lost, "The mark is committed and the row is not. The next delivery finds the mark, and is acknowledged."},
			{"cut", written, doubled, "The row is committed, but the worker gets an error. It removes the mark, and the order comes again."},
			{"restart", written, lost, "The work fails, and the mark cannot be removed while the server is down. The next delivery finds it."},
			{"restart", replying, doubled, "The row is committed, but the worker gets an error. It removes the mark, and the order comes again."},
		}, handle: insertFirst},
	{Name: "single-update", Title: "Single UPDATE",
		About: "It claims the order's row with UPDATE … SET status = 'processing' WHERE status = 'pending', commits, and then works.",
		Leaks: []leak{
			{"kill", started, lost, "The row says processing for ever. The next delivery updates no row, and is acknowledged."},
			{"restart", written, lost, "The work is rolled back and the claim is not. The row says processing for ever."},
		}, handle: singleUpdate},
	{Name: "two-phase", Title: "Two-phase without a token",
		About: "It claims the row as above, with claimed_at. A reaper frees old claims. The commit does not check whose claim it ends.",
		Leaks: []leak{
			{"freeze", started, doubled, "The reaper frees the row, and another worker does the order. The frozen worker wakes, and commits as well."},
		}, handle: twoPhase, tend: reap},
	{Name: "setnx-before", Title: "SETNX before",
		About: "It sets a key in another store if the key is absent, and then works. If that fails, it deletes the key.",
		Leaks: []leak{
			{"kill", started, lost, "The key is set and the row is not written. The next delivery finds the key, and is acknowledged."},
			{"cut", written, doubled, "The row is committed, but the worker gets an error. It deletes the key, and the order comes again."},
			{"restart", replying, doubled, "The row is committed, but the worker gets an error. It deletes the key, and the order comes again."},
		}, handle: setnxBefore},
	{Name: "setnx-after", Title: "SETNX after",
		About: "It looks for a key in another store. If it is absent, it works, commits its row, and then sets the key.",
		Leaks: []leak{
			{"kill", committed, doubled, "The row is committed and the key is not set. The next delivery finds no key."},
			{"freeze", started, doubled, "The order is delivered again meanwhile, and has no key yet. The frozen worker has looked already, and writes too."},
			{"freeze", committed, doubled, "The row is committed and the key is not set. The next delivery finds no key."},
			{"cut", written, doubled, "The row is committed, but the worker gets an error and sets no key. The order comes again."},
			{"restart", replying, doubled, "The row is committed, but the worker gets an error and sets no key. The order comes again."},
			{"duplicates", started, doubled, "Two copies are looked up at once, and neither finds a key."},
		}, handle: setnxAfter},
	{Name: "lease", Title: "Lease without a fence",
		About: "It takes a lease on the order, works, and commits its row. Another worker takes over a lease that has expired.",
		Leaks: []leak{
			{"freeze", started, doubled, "The lease expires, and another worker does the order. The frozen worker wakes, knows nothing of it, and writes too."},
		}, handle: leaseWithoutFence},
	{Name: withPawl, Title: "Pawl",
		About: "consumer.Handle stores the order, and works under a lease with a fence. Row, memory and fence are checked in one transaction."},
}

// wayOf returns the way with this name.
func wayOf(name string) (way, bool) {
	i := slices.IndexFunc(ways, func(w way) bool { return w.Name == name })
	if i < 0 {
		return way{}, false
	}
	return ways[i], true
}

// outcomes returns what a button does to the orders of a way, worst first. It is empty if the
// button breaks nothing.
func (w way) outcomes(button string) (all []outcome) {
	for _, l := range w.Leaks {
		if l.Button == button && !slices.Contains(all, l.Outcome) {
			all = append(all, l.Outcome)
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all
}

// Cell is the word of the matrix for a button: "fine", "lost", "doubled" or "lost, doubled".
func (w way) Cell(button string) string {
	all := w.outcomes(button)
	if len(all) == 0 {
		return fine.String()
	}
	words := make([]string, len(all))
	for i, o := range all {
		words[i] = o.String()
	}
	return strings.Join(words, ", ")
}

// selectThenAct looks for the mark. It writes the mark in the transaction of the row.
func selectThenAct(ctx context.Context, h *hand, key string) error {
	var known bool
	if err := h.pool.QueryRow(ctx, "select exists (select from lab.processed as p where p.key operator(pg_catalog.=) $1)", key).Scan(&known); err != nil {
		return err
	}
	if known {
		return errSeen
	}
	if err := h.work(key); err != nil {
		return err
	}
	return h.effect(ctx, key, "insert into lab.processed (key) values ($1) on conflict do nothing")
}

// insertFirst commits the mark before the work, and removes it if the work fails.
func insertFirst(ctx context.Context, h *hand, key string) error {
	//pawl:allow markapart the lab shows this mistake
	tag, err := h.pool.Exec(ctx, "insert into lab.processed (key) values ($1) on conflict do nothing", key)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return errSeen
	}
	if err = h.work(key); err == nil {
		err = h.effect(ctx, key)
	}
	if err != nil {
		_, kept := h.pool.Exec(ctx, "delete from lab.processed as p where p.key operator(pg_catalog.=) $1", key)
		return errors.Join(err, kept)
	}
	return nil
}

// A row of lab.claim stands for an order. A service would have it before the message came.
const putClaim = "insert into lab.claim (key) values ($1) on conflict do nothing"

// singleUpdate claims the row, commits that, and works.
func singleUpdate(ctx context.Context, h *hand, key string) error {
	if _, err := h.pool.Exec(ctx, putClaim, key); err != nil {
		return err
	}
	tag, err := h.pool.Exec(ctx, `update lab.claim as c set status = 'processing'
 where c.key operator(pg_catalog.=) $1 and c.status operator(pg_catalog.=) 'pending'`, key)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return errSeen
	}
	if err := h.work(key); err != nil {
		return err
	}
	return h.effect(ctx, key, "update lab.claim as c set status = 'done' where c.key operator(pg_catalog.=) $1")
}

// twoPhase claims the row with a time, so that reap can free it. The commit has no token.
func twoPhase(ctx context.Context, h *hand, key string) error {
	if _, err := h.pool.Exec(ctx, putClaim, key); err != nil {
		return err
	}
	tag, err := h.pool.Exec(ctx, `update lab.claim as c set status = 'processing', claimed_at = pg_catalog.clock_timestamp()
 where c.key operator(pg_catalog.=) $1 and c.status operator(pg_catalog.=) 'pending'`, key)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return h.seenIf(ctx, "select c.status operator(pg_catalog.=) 'done' from lab.claim as c where c.key operator(pg_catalog.=) $1", key)
	}
	if err := h.work(key); err != nil {
		return err
	}
	return h.effect(ctx, key, "update lab.claim as c set status = 'done' where c.key operator(pg_catalog.=) $1")
}

// reap frees the claims that are older than a lease.
func reap(ctx context.Context, h *hand) error {
	_, err := h.pool.Exec(ctx, `update lab.claim as c set status = 'pending'
 where c.status operator(pg_catalog.=) 'processing' and c.claimed_at operator(pg_catalog.<) (pg_catalog.clock_timestamp() operator(pg_catalog.-) $1::interval)`, h.lease)
	return err
}

// setnxBefore sets the key before the work, and deletes it if the work fails.
func setnxBefore(ctx context.Context, h *hand, key string) error {
	set, err := h.keys.setNX(ctx, key)
	if err != nil {
		return err
	}
	if !set {
		return errSeen
	}
	if err = h.work(key); err == nil {
		err = h.effect(ctx, key)
	}
	if err != nil {
		return errors.Join(err, h.keys.del(ctx, key))
	}
	return nil
}

// setnxAfter sets the key after the work.
func setnxAfter(ctx context.Context, h *hand, key string) error {
	known, err := h.keys.exists(ctx, key)
	if err != nil {
		return err
	}
	if known {
		return errSeen
	}
	if err := h.work(key); err != nil {
		return err
	}
	if err := h.effect(ctx, key); err != nil {
		return err
	}
	_, err = h.keys.setNX(ctx, key)
	return err
}

// leaseWithoutFence takes the lease, or takes it over once it has expired.
func leaseWithoutFence(ctx context.Context, h *hand, key string) error {
	tag, err := h.pool.Exec(ctx, `insert into lab.lease as l (key, expires_at) values ($1, pg_catalog.clock_timestamp() operator(pg_catalog.+) $2::interval)
on conflict (key) do update set expires_at = excluded.expires_at
 where l.expires_at operator(pg_catalog.<) pg_catalog.clock_timestamp() and not l.done`, key, h.lease)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return h.seenIf(ctx, "select l.done from lab.lease as l where l.key operator(pg_catalog.=) $1", key)
	}
	if err := h.work(key); err != nil {
		return err
	}
	return h.effect(ctx, key, "update lab.lease as l set done = true where l.key operator(pg_catalog.=) $1")
}

// worksFor is the time in a handler besides its writes, long enough to be hit by a fault.
const worksFor = 150 * time.Millisecond
