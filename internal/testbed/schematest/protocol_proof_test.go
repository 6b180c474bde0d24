//go:build proof

package schematest_test

import (
	"context"
	"fmt"
	"strings"
)

// The bounds of the walk. With three attempts it has 14,925 states instead of 3,458, and is as
// clean.
const (
	maxDeliveries = 2
	maxAttempts   = 2
	maxFaults     = 2 // crashes, and answers to COMMIT that are lost
)

// A protocol is how the parties use the contract. Its zero value is the right way; each field is
// one wrong way.
type protocol struct {
	newKeyPerAttempt bool // the provider is called with another key at each attempt
	effectThenEnd    bool // the effect commits before the job ends
	endThenEffect    bool // the job ends before the effect commits
	ackThenRecord    bool // the broker is told before the database
	markThenCall     bool // the call is marked as made before it is made
	silenceIsFailure bool // an unanswered COMMIT is taken for one that failed
}

// A world is all that is not in the database: the parties, the provider, and what the judge
// remembers. It is a value: to take a step back is to forget it.
type world struct {
	deliveries int // made so far
	recorded   bool
	acked      bool
	dead       bool // the source will not deliver any more

	workers [2]worker
	faults  int

	calls, applied int
	keys           uint // the keys that the provider has seen, a bit each

	newest [maxDeliveries + 1]int // the newest fence issued of each job
	ended  string                 // how a job ended, if one did
}

// A worker is one attempt in progress.
type worker struct {
	step  string // "" when idle
	job   int
	fence int
	had   bool // the call was marked before this attempt marked it
}

// rows is what the database holds. Ids and times that cannot matter are left out, so that equal
// states are equal.
type rows struct {
	// Of each its id, status, fence, attempts, and while it is held whether its lease is live or
	// over.
	jobs            string
	keys            int
	effects, events int
	marked          bool
}

const rowsQuery = `
select coalesce(string_agg(concat_ws(' ', j.id, j.status, j.fence, j.attempts,
         (select case when w.seen_at + w.lease < clock_timestamp() then 'over' else 'live' end
            from pawl.worker as w where w.id = j.claimed_by)), ', ' order by j.id), ''),
       (select count(*) from pawl.job_key), (select count(*) from play.effect), (select count(*) from play.event),
       exists (select from play.mark)
  from pawl.job as j`

// protocolTables are the handler's: its effect and the event that tells of it, and its note that
// the provider was called.
const protocolTables = play + `;
create table play.event (what text not null);
create table play.mark (what text not null);`

// A move is something that may happen next. Its statements are one transaction; then is the world
// after it, given what the last statement answered.
type move struct {
	name       string
	statements string // "" changes nothing in the database
	then       func(w *world, answer string) (broken string)
	refused    func(w *world) // what the party does on P4020; nil: the move must not be refused
}

// moves lists all that may happen in a world.
func (p protocol) moves(w world, now rows) (all []move) {
	all = append(all, p.source(w)...)
	for i, each := range w.workers {
		all = append(all, attempt{p, i, each, now, w.faults >= maxFaults}.moves()...)
		if each.step != "" && w.faults < maxFaults {
			all = append(all, move{name: fmt.Sprintf("worker %d dies", i), then: func(w *world, _ string) string {
				w.workers[i] = worker{}
				w.faults++
				return ""
			}})
		}
	}
	if strings.Contains(now.jobs, "processing") {
		all = append(all, move{name: "sweep", statements: "select s.outcome from pawl_v1.job_sweep('{k}') as s", then: nothing})
	}
	if strings.Contains(now.jobs, "live") {
		const expire = "update pawl.worker as w set seen_at = now() - interval '1 day' where w.id in (select j.claimed_by from pawl.job as j)"
		all = append(all, move{name: "the lease expires", statements: expire, then: nothing})
	}
	return all
}

func nothing(*world, string) string { return "" }

// source delivers one message twice, and may die between any two steps.
func (p protocol) source(w world) []move {
	record := move{
		name: fmt.Sprintf("delivery %d is recorded", w.deliveries+1),
		statements: fmt.Sprintf(`select setval('pawl.job_id_seq', %d, false);
select e.outcome from pawl_v1.job_enqueue('q', 'k', '', '{"key": "x", "max_attempts": %d}') as e`, w.deliveries+1, maxAttempts),
		then: func(w *world, _ string) string { w.recorded = true; return "" },
	}
	ack := move{name: "acknowledge", then: func(w *world, _ string) string { w.acked = true; return "" }}
	die := move{name: "source dies", then: func(w *world, _ string) string {
		w.faults++
		// The broker does not repeat what was acknowledged.
		w.dead = w.acked || w.deliveries+1 == maxDeliveries
		return next(w)
	}}
	again := move{name: "deliver again", then: func(w *world, _ string) string { return next(w) }}

	first, second, firstDone, secondDone := record, ack, w.recorded, w.acked
	if p.ackThenRecord {
		first, second, firstDone, secondDone = ack, record, w.acked, w.recorded
	}
	switch {
	case w.dead:
		return nil
	case !firstDone:
		return []move{first}
	case !secondDone && w.faults < maxFaults:
		return []move{die, second}
	case !secondDone:
		return []move{second}
	case w.deliveries+1 < maxDeliveries:
		return []move{again}
	}
	return nil
}

func next(w *world) string {
	w.deliveries++
	if !w.dead {
		w.recorded, w.acked = false, false
	}
	return ""
}

// judge names the properties that do not hold here.
func (w *world) judge(now rows) (broken []string) {
	if w.ended == "" && strings.Contains(now.jobs, "dead_letter") {
		w.ended = "dead_letter"
	}
	finished := w.ended == "finished"
	for _, property := range []struct {
		name string
		lost bool
	}{
		{"p_once", now.effects > 1},
		{"p_outbox", now.effects != now.events},
		{"p_ext", w.applied > 1},
		{"p_calls", w.calls > maxAttempts},
		{"p_done", finished && (now.effects == 0 || w.applied == 0)},
		{"p_term", finished && now.jobs != "" && !strings.Contains(now.jobs, "succeeded") ||
			w.ended == "dead_letter" && !strings.Contains(now.jobs, "dead_letter")},
		{"p_loss", w.dead && w.acked && now.keys == 0},
	} {
		if property.lost {
			broken = append(broken, property.name)
		}
	}
	return broken
}

// accepted judges a fenced write that the database let through.
func accepted(w *world, by worker, status string) string {
	switch {
	case by.fence != w.newest[by.job]:
		return "p_fence"
	case w.ended == "dead_letter":
		return "p_term"
	case status != "processing":
		return "p_held"
	}
	return ""
}

// explore visits every state that the moves lead to, once, on a database that holds protocolTables.
// The whole walk is one transaction: a step back is a rollback to the savepoint before it. It stops
// at the first broken property that matters.
func (p protocol) explore(ctx context.Context, url string, matters func(property string) bool) (states int, err error) {
	w, err := newWalk(ctx, url, p, matters)
	if err != nil {
		return 0, err
	}
	defer w.close()
	err = w.from(ctx, world{}, rows{}, 0)
	return len(w.seen), err
}
