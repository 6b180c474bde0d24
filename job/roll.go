package job

import (
	"slices"
	"sync"
	"time"
)

// A roll is the attempts that a session has in hand. One timer stands for the limits of all.
type roll struct {
	mu    sync.Mutex
	all   *attempt // a list: each knows its neighbours
	over  bool     // the session has ended
	timer *time.Timer
	wakes time.Time // when the timer fires; zero: it does not
}

// call puts attempts on the roll.
func (r *roll) call(all []*attempt) {
	r.mu.Lock()
	for _, a := range all {
		a.previous, a.following = nil, r.all
		if r.all != nil {
			r.all.previous = a
		}
		r.all, a.enrolled = a, true
	}
	over := r.over
	r.mu.Unlock()
	if over {
		cancelAll(all, nil)
	}
}

// strike takes attempts that have ended off the roll.
func (r *roll) strike(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.enrolled {
		return
	}
	a.enrolled, a.due = false, time.Time{}
	if a.following != nil {
		a.following.previous = a.previous
	}
	if a.previous != nil {
		a.previous.following = a.following
	} else {
		r.all = a.following
	}
	a.previous, a.following = nil, nil
}

// those returns the attempts for which is says so.
func (r *roll) those(is func(*attempt) bool) (found []*attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := r.all; a != nil; a = a.following {
		if is(a) {
			found = append(found, a)
		}
	}
	return found
}

// end ends the contexts of all, now and later.
func (r *roll) end() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	cancelAll(r.those(func(*attempt) bool { return true }), nil)
}

// recall ends the contexts of cancelled jobs.
func (r *roll) recall(ids []int64) {
	cancelAll(r.those(func(a *attempt) bool {
		return slices.ContainsFunc(a.jobs, func(j Job) bool { return slices.Contains(ids, j.ID) })
	}), errRecalled)
}

func cancelAll(all []*attempt, cause error) {
	for _, a := range all {
		a.cancel(cause)
	}
}

// watch has the context of an attempt end at limit, if that is not zero, and the handler that has some of its jobs be left behind at
// overdue. At the zero time neither happens any more.
func (r *roll) watch(a *attempt, limit, overdue time.Time, jobs []Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.due, a.overdue, a.handed = limit, overdue, jobs
	if limit.IsZero() {
		a.due = overdue
	}
	r.arm(a.due)
}

// arm has the timer fire at a time, or before it. It is called with the lock held.
func (r *roll) arm(at time.Time) {
	if at.IsZero() || !r.wakes.IsZero() && !r.wakes.After(at) {
		return
	}
	r.wakes = at
	if r.timer == nil {
		r.timer = time.AfterFunc(time.Until(at), r.tell)
	} else {
		r.timer.Reset(time.Until(at))
	}
}

// tell sees to the attempts whose limits are over, and looks for the next limit.
func (r *roll) tell() {
	var expired []*attempt
	var next time.Time
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for a := r.all; a != nil; a = a.following {
		switch {
		case a.due.IsZero():
			continue
		case a.due.After(now):
		case a.overdue.After(now):
			a.due = a.overdue
			expired = append(expired, a)
		default:
			a.due = time.Time{}
			go a.leaveBehind(a.handed)
			continue
		}
		if next.IsZero() || a.due.Before(next) {
			next = a.due
		}
	}
	r.wakes = time.Time{}
	r.arm(next)
	for _, a := range expired {
		a.expire()
	}
}
