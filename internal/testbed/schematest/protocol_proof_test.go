//go:build proof

package schematest_test

import (
	"context"
	"fmt"
	"strings"
)

// The bounds of the walk, which has 3,458 states. With three attempts it has 14,925 states and also
// no violation.
const (
	maxDeliveries = 2
	maxAttempts   = 2
	maxFaults     = 2 // crashes and lost replies to COMMIT
)

// A protocol is how the parties use the contract. The zero value is correct. Each field is one
// defect.
type protocol struct {
	newKeyPerAttempt bool // each attempt calls the provider with another key
	effectThenEnd    bool // the effect commits before the job ends
	endThenEffect    bool // the job ends before the effect commits
	ackThenRecord    bool // the message is acknowledged before it is recorded
	markThenCall     bool // the call is marked as made before it is made
	silenceIsFailure bool // an unanswered COMMIT counts as failed
}

// A world is the state outside the database: the parties, the provider, and the judge's memory. It
// is a value, so undoing a step needs no work.
type world struct {
	deliveries int // so far
	recorded   bool
	acked      bool
	dead       bool // the source delivers no more

	workers [2]worker
	faults  int

	calls, applied int
	keys           uint // the keys that the provider has seen, one bit each

	newest [maxDeliveries + 1]int // the newest fence issued for each job
	ended  string                 // the verb that ended a job, if any
}

// A worker is one attempt in progress.
type worker struct {
	step  string // "" when idle
	job   int
	fence int
	had   bool // the call was marked before this attempt
}

// A rows is the database's state, without ids and times that do not matter, so that equal states
// are equal.
type rows struct {
	// jobs has id, status, fence and attempts of each job, and whether a held job's lease is live
	// or over.
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

// protocolTables are the handler's tables: its effect, the event about it, and the mark that the
// provider was called.
const protocolTables = play + `;
create table play.event (what text not null);
create table play.mark (what text not null);`

// A move is a possible next step. Its statements are one transaction. then updates the world with
// the last statement's result.
type move struct {
	name       string
	statements string // "" does not use the database
	then       func(w *world, answer string) (broken string)
	refused    func(w *world) // the party's reaction to P4020; nil: the move must not be refused
}

// moves returns all moves that are possible in a world.
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
		// The broker does not redeliver an acknowledged message.
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

// judge returns the properties that are violated in this state.
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

// accepted judges a fenced write that the database accepted.
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

// explore visits every reachable state once, on a database that has protocolTables. The whole walk
// is one transaction, and undoing a step is a rollback to a savepoint. It stops at the first
// violated property that matters.
func (p protocol) explore(ctx context.Context, url string, matters func(property string) bool) (states int, err error) {
	w, err := newWalk(ctx, url, p, matters)
	if err != nil {
		return 0, err
	}
	defer w.close()
	err = w.from(ctx, world{}, rows{}, 0)
	return len(w.seen), err
}
