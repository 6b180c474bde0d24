package sql_test

import (
	"fmt"
	"strings"
)

// The steps of an attempt: claim, call the provider, mark the call under the fence, then effect, event and end in one
// transaction.
const (
	toCall    = "call"
	toMark    = "mark"
	toFinish  = "finish"
	toEnd     = "end"    // effectThenEnd: the effect is there
	toEffect  = "effect" // endThenEffect: the job is gone
	toResolve = "resolve"
)

const effectAndEvent = "insert into play.effect values ('x'); insert into play.event values ('x');"

// worker lists what an attempt may do next.
func (p protocol) worker(i int, me worker, now rows) []move {
	name := func(what string) string { return fmt.Sprintf("worker %d: %s", i, what) }
	end := fmt.Sprintf("select f.outcome from pawl_v1.job_finish(%d, %d) as f", me.job, me.fence)
	drop := func(w *world) { w.workers[i] = worker{} }
	status := statusOf(now, me.job)

	// goOn is a fenced write: if it is accepted the attempt goes on to step.
	goOn := func(step, ended string) func(*world, string) string {
		return func(w *world, _ string) string {
			broken := accepted(w, me, status)
			if ended != "" {
				w.ended = ended
			}
			w.move(i, step)
			return broken
		}
	}
	switch me.step {
	case "":
		return []move{{name: name("claim"), statements: claimAnew, then: func(w *world, answer string) string { return p.claim(w, i, answer, now) }}}
	case toCall:
		return []move{{name: name("call"), then: func(w *world, _ string) string { p.call(w, i, now); return "" }}}
	case toMark:
		mark := fmt.Sprintf("select h.outcome from pawl_v1.job_hold(%d, %d) as h; insert into play.mark select 'x' where not exists (select from play.mark)", me.job, me.fence)
		return []move{{name: name("mark"), statements: mark, refused: drop, then: func(w *world, answer string) string {
			w.workers[i].had = now.marked
			return goOn(p.afterMark(), "")(w, answer)
		}}}
	case toEnd:
		return []move{{name: name("event and end"), statements: "insert into play.event values ('x');" + end, refused: drop, then: goOn("", "finished")}}
	case toEffect:
		return []move{{name: name("effect and event"), statements: effectAndEvent, then: func(w *world, _ string) string { w.move(i, ""); return "" }}}
	case toResolve:
		return []move{p.resolve(name, end, me, drop, goOn("", "finished"))}
	case toFinish:
		return p.finish(name, end, i, drop, goOn)
	}
	panic("no step " + me.step)
}

// claimAnew is a claim by a new incarnation of a process; its lease does not end by itself during a test.
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

// claim begins an attempt, unless nothing was due. A claim over a live lease is theft, a fence issued twice no fence.
func (p protocol) claim(w *world, i int, answer string, before rows) string {
	me := worker{step: p.afterClaim()}
	if n, _ := fmt.Sscan(answer, &me.job, &me.fence); n != 2 {
		return ""
	}
	w.workers[i] = me
	stale := me.fence <= w.newest[me.job]
	w.newest[me.job] = max(w.newest[me.job], me.fence)
	switch {
	case strings.Contains(before.jobs, "live"):
		return "p_excl"
	case stale:
		return "p_fence"
	}
	return ""
}

// call asks the provider, which applies each key once. A call that is marked is not made again.
func (p protocol) call(w *world, i int, now rows) {
	me := w.workers[i]
	skip, key := now.marked, uint(0)
	if p.markThenCall {
		skip = me.had
	}
	if p.newKeyPerAttempt {
		key = uint(me.fence)
	}
	if !skip {
		w.calls++
		if w.keys&(1<<key) == 0 {
			w.keys |= 1 << key
			w.applied++
		}
	}
	w.workers[i].step = toMark
	if p.markThenCall {
		w.workers[i].step = toFinish
	}
}

// finish is the handler's transaction. Its COMMIT may go unanswered, whether it arrived or not.
func (p protocol) finish(name func(string) string, end string, i int, drop func(*world), goOn func(step, ended string) func(*world, string) string) []move {
	switch {
	case p.effectThenEnd:
		return []move{{name: name("effect"), statements: "insert into play.effect values ('x')", then: func(w *world, _ string) string { w.move(i, toEnd); return "" }}}
	case p.endThenEffect:
		return []move{{name: name("end"), statements: end, refused: drop, then: goOn(toEffect, "finished")}}
	}
	told := move{name: name("finish"), statements: effectAndEvent + end, refused: drop, then: goOn("", "finished")}
	silent := move{name: name("finish, unanswered"), statements: told.statements, refused: drop, then: func(w *world, answer string) string {
		w.faults++
		return goOn(toResolve, "finished")(w, answer)
	}}
	never := move{name: name("finish, never arrived"), then: func(w *world, _ string) string {
		w.faults++
		w.move(i, toResolve)
		return ""
	}}
	return []move{told, silent, never}
}

// resolve asks again, with the same fence: whoever was refused has no part in the job any more.
func (p protocol) resolve(name func(string) string, end string, me worker, drop func(*world), ended func(*world, string) string) move {
	if p.silenceIsFailure {
		again := effectAndEvent + fmt.Sprintf("delete from pawl.job as j where j.id = %d", me.job)
		return move{name: name("again, unasked"), statements: again, then: func(w *world, _ string) string { drop(w); return "" }}
	}
	return move{name: name("finish again"), statements: effectAndEvent + end, refused: drop, then: ended}
}

func statusOf(now rows, job int) string {
	for _, one := range strings.Split(now.jobs, ", ") {
		if fields := strings.Fields(one); len(fields) > 1 && fields[0] == fmt.Sprint(job) {
			return fields[1]
		}
	}
	return ""
}
