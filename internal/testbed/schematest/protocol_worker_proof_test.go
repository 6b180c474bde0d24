//go:build proof

package schematest_test

import (
	"cmp"
	"fmt"
	"strings"
)

// The steps of an attempt: claim, call the provider, mark the call under the fence, then commit
// effect, event and end in one transaction.
const (
	toCall    = "call"
	toMark    = "mark"
	toFinish  = "finish"
	toEnd     = "end"    // effectThenEnd: the effect is committed
	toEffect  = "effect" // endThenEffect: the job is deleted
	toResolve = "resolve"
)

const effectAndEvent = "insert into play.effect values ('x'); insert into play.event values ('x');"

// An attempt is worker i of a protocol in a state.
type attempt struct {
	protocol
	i     int
	me    worker
	now   rows
	spent bool // no fault remains
}

// moves returns the possible moves of the attempt.
func (a attempt) moves() []move {
	switch a.me.step {
	case "":
		return a.does("claim", claimAnew, func(w *world, answer string) string { return a.claim(w, answer) })
	case toCall:
		return a.does("call", "", func(w *world, _ string) string { return a.call(w) })
	case toMark:
		return a.writes("mark", a.hold()+"insert into play.mark select 'x' where not exists (select from play.mark)", func(w *world, _ string) string {
			w.workers[a.i].had = a.now.marked
			return a.goOn(w, a.afterMark())
		})
	case toEnd:
		return a.writes("event and end", "insert into play.event values ('x');"+a.end(), a.ends(""))
	case toEffect:
		return a.does("effect and event", effectAndEvent, a.becomes(""))
	case toResolve:
		return a.resolve()
	}
	return a.finish()
}

// does returns a move that is never refused.
func (a attempt) does(what, statements string, then func(*world, string) string) []move {
	return []move{{name: fmt.Sprintf("worker %d: %s", a.i, what), statements: statements, then: then}}
}

// writes returns a move under the fence. A refused attempt is dropped.
func (a attempt) writes(what, statements string, then func(*world, string) string) []move {
	all := a.does(what, statements, then)
	all[0].refused = func(w *world) { w.workers[a.i] = worker{} }
	return all
}

func (a attempt) hold() string {
	return fmt.Sprintf("select h.outcome from pawl_v1.job_hold(%d, %d) as h;", a.me.job, a.me.fence)
}

func (a attempt) end() string {
	return fmt.Sprintf("select f.outcome from pawl_v1.job_finish(%d, %d) as f", a.me.job, a.me.fence)
}

// goOn continues after an accepted write.
func (a attempt) goOn(w *world, step string) string {
	broken := accepted(w, a.me, statusOf(a.now, a.me.job))
	w.move(a.i, step)
	return broken
}

// ends continues after an accepted finish.
func (a attempt) ends(step string) func(*world, string) string {
	return func(w *world, _ string) string {
		w.ended = cmp.Or(w.ended, "finished")
		return a.goOn(w, step)
	}
}

// becomes continues after a move that proves nothing.
func (a attempt) becomes(step string) func(*world, string) string {
	return func(w *world, _ string) string {
		w.move(a.i, step)
		return ""
	}
}

// claimAnew is a claim by a new worker row, whose lease does not end during a test.
const claimAnew = `select c.id || ' ' || c.fence
  from pawl_v1.job_claim('q', (select r.worker_id from pawl_v1.worker_register('w', '12 hours') as r), 1) as c`

func (p protocol) afterClaim() string {
	if p.markThenCall {
		return toMark
	}
	return toCall
}

func (p protocol) afterMark() string {
	if p.markThenCall {
		return toCall
	}
	return toFinish
}

func (w *world) move(i int, step string) {
	if w.workers[i].step = step; step == "" {
		w.workers[i] = worker{}
	}
}

// claim begins an attempt if a job was due. A claim over a live lease, or a fence that is issued
// twice, is a violation.
func (a attempt) claim(w *world, answer string) string {
	me := worker{step: a.afterClaim()}
	if n, _ := fmt.Sscan(answer, &me.job, &me.fence); n != 2 {
		return ""
	}
	w.workers[a.i] = me
	stale := me.fence <= w.newest[me.job]
	w.newest[me.job] = max(w.newest[me.job], me.fence)
	switch {
	case strings.Contains(a.now.jobs, "live"):
		return "p_excl"
	case stale:
		return "p_fence"
	}
	return ""
}

// call asks the provider, which applies each key once. A marked call is not repeated.
func (a attempt) call(w *world) string {
	skip, key, step := a.now.marked, 0, toMark
	if a.markThenCall {
		skip, step = a.me.had, toFinish
	}
	if a.newKeyPerAttempt {
		key = a.me.fence
	}
	if !skip {
		w.calls++
		if w.keys&(1<<key) == 0 {
			w.keys |= 1 << key
			w.applied++
		}
	}
	w.move(a.i, step)
	return ""
}

// finish is the handler's transaction. Its COMMIT may be unanswered, whether it arrived or not.
func (a attempt) finish() []move {
	switch {
	case a.effectThenEnd:
		return a.does("step", "insert into play.effect values ('x')", a.becomes(toEnd))
	case a.endThenEffect:
		return a.writes("end", a.end(), a.ends(toEffect))
	}
	all := a.writes("finish", effectAndEvent+a.end(), a.ends(""))
	if a.spent {
		return all
	}
	silent := func(then func(*world, string) string) func(*world, string) string {
		return func(w *world, answer string) string {
			w.faults++
			return then(w, answer)
		}
	}
	all = append(all, a.writes("finish, unanswered", effectAndEvent+a.end(), silent(a.ends(toResolve)))...)
	return append(all, a.does("finish, never arrived", "", silent(a.becomes(toResolve)))...)
}

// resolve tries again with the same fence. A refused attempt no longer owns the job.
func (a attempt) resolve() []move {
	if a.silenceIsFailure {
		return a.does("again, unasked", effectAndEvent+fmt.Sprintf("delete from pawl.job as j where j.id = %d", a.me.job), a.becomes(""))
	}
	return a.writes("finish again", effectAndEvent+a.end(), a.ends(""))
}

func statusOf(now rows, job int) string {
	for _, one := range strings.Split(now.jobs, ", ") {
		if fields := strings.Fields(one); len(fields) > 1 && fields[0] == fmt.Sprint(job) {
			return fields[1]
		}
	}
	return ""
}
