package sqstest

import (
	"container/heap"
	"container/list"
	"sync"
	"time"
)

// A queue is the state machine of the figure in doc.go. The methods below require q.mu. The
// operations that lock it are in receive.go and op_*.go.
type queue struct {
	server  *Server
	name    string
	arn     string
	created time.Time

	mu       sync.Mutex
	set      settings
	modified time.Time
	purged   time.Time
	deleted  bool // set by DeleteQueue, for requests that already hold the queue

	all      map[int64]*message // by number
	shelf    shelf
	timers   timers // delayed and in flight, earliest first
	ready    int
	delayed  int
	inFlight int
	numbers  int64     // messages stored so far
	picks    int64     // messages handed out so far
	waiters  list.List // of chan struct{}: long polls, longest waiting first
	alarm    *time.Timer
	alarmAt  time.Time // zero if the alarm is not set
	stats    Stats
	tags     map[string]string
	fifo     *fifo // nil for a standard queue
}

func newQueue(s *Server, name string, set settings, now time.Time) *queue {
	q := &queue{server: s, name: name, arn: s.arn(name), created: now, modified: now, set: set,
		all: map[int64]*message{}, tags: map[string]string{}}
	if set.fifo {
		q.fifo = &fifo{sent: map[string]sending{}, attempts: map[string]attempt{}, calls: map[string]int{}}
		q.shelf.groups = map[string]*group{}
	}
	return q
}

func (q *queue) insert(m *message, delay time.Duration, now time.Time) {
	q.numbers++
	m.number, m.timed, m.here, m.handle = q.numbers, -1, 0, ""
	q.all[m.number] = m
	q.shelf.stored(m)
	if q.fifo != nil {
		q.fifo.sequence++
		m.sequence = q.fifo.sequence
	}
	if delay <= 0 {
		q.makeReady(m)
		return
	}
	m.state = delayed
	q.delayed++
	q.wait(m, now.Add(delay))
}

func (q *queue) makeReady(m *message) {
	m.state = ready
	q.ready++
	if q.shelf.review(m.lane) {
		q.wake()
	}
}

// wait adds m to the timers or changes its time there.
func (q *queue) wait(m *message, due time.Time) {
	m.due = due
	if m.timed < 0 {
		heap.Push(&q.timers, m)
	} else {
		heap.Fix(&q.timers, m.timed)
	}
	q.setAlarm()
}

func (q *queue) leave(m *message) {
	switch m.state {
	case ready:
		q.ready--
	case delayed:
		q.delayed--
		heap.Remove(&q.timers, m.timed)
	case inFlight:
		q.inFlight--
		m.lane.inFlight--
		heap.Remove(&q.timers, m.timed)
	}
	m.state = gone
}

func (q *queue) remove(m *message) {
	q.leave(m)
	delete(q.all, m.number)
	if q.shelf.removed(m) {
		q.wake()
	}
}

// advance makes every message ready whose delay or visibility timeout has passed.
func (q *queue) advance(now time.Time) {
	for len(q.timers) > 0 && !q.timers[0].due.After(now) {
		m := q.timers[0]
		q.leave(m)
		q.makeReady(m)
	}
}

// setAlarm schedules advance for the earliest timer, so that long polls wake.
func (q *queue) setAlarm() {
	if len(q.timers) == 0 {
		return
	}
	due := q.timers[0].due
	if !q.alarmAt.IsZero() && !due.Before(q.alarmAt) {
		return
	}
	q.alarmAt = due
	if q.alarm == nil {
		q.alarm = time.AfterFunc(time.Until(due), q.onAlarm)
	} else {
		q.alarm.Reset(time.Until(due))
	}
}

func (q *queue) onAlarm() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.alarmAt = time.Time{}
	q.advance(time.Now())
	q.setAlarm()
}

// wake lets the longest-waiting poll look again. Each message that becomes ready wakes one poll,
// and a poll waits only while nothing is ready. So no poll waits while a message is ready.
func (q *queue) wake() {
	if first := q.waiters.Front(); first != nil {
		close(q.waiters.Remove(first).(chan struct{}))
	}
}

func (q *queue) wakeAll() {
	for q.waiters.Len() > 0 {
		q.wake()
	}
}

// take hands out up to n ready messages. Messages beyond maxReceiveCount are removed and returned
// as dead.
func (q *queue) take(n int, visibility time.Duration, hasDLQ bool, now time.Time) (taken, dead []*message) {
	q.advance(now)
	faults := q.server.faults.Load()
	for len(taken) < n {
		m := q.shelf.next(func(n int) int { return faults.pick(q.name, q.picks+1, n) })
		if m == nil {
			break
		}
		switch {
		case now.Sub(m.sent) > q.set.retention:
			q.stats.TooOld++
			q.remove(m)
		case hasDLQ && m.here >= q.set.redrive.MaxReceiveCount:
			q.stats.DeadLettered++
			q.remove(m)
			dead = append(dead, m)
		default:
			q.handOut(m, visibility, now)
			taken = append(taken, m)
		}
	}
	q.shelf.served()
	q.duplicate(faults, taken, now)
	return taken, dead
}

func (q *queue) handOut(m *message, visibility time.Duration, now time.Time) {
	q.leave(m)
	q.picks++
	if m.receives > 0 {
		q.stats.Redelivered++
	}
	q.stats.Received++
	m.receives++
	m.here++
	if m.first.IsZero() {
		m.first = now
	}
	m.last = now
	m.handle = m.newHandle(q.name, now)
	m.state, m.changed = inFlight, false
	q.inFlight++
	q.shelf.handedOut(m)
	q.wait(m, now.Add(visibility))
}

// duplicate makes the second copies that Faults.Duplicate asks for.
func (q *queue) duplicate(faults *Faults, taken []*message, now time.Time) {
	if faults.Duplicate == nil || q.fifo != nil {
		return
	}
	for _, m := range taken {
		if m.copied || !faults.Duplicate(q.arrival(m)) {
			continue
		}
		second := *m
		second.copied = true
		here := m.here
		q.insert(&second, 0, now)
		second.here = here
		q.stats.Duplicated++
	}
}

func (q *queue) arrival(m *message) Arrival {
	return Arrival{Queue: q.name, MessageID: m.id, Body: m.body, Number: m.number, Receives: m.here}
}

// dropOld removes messages past the retention period that are not in flight.
func (q *queue) dropOld(now time.Time) {
	for _, m := range q.all {
		if m.state != inFlight && now.Sub(m.sent) > q.set.retention {
			q.stats.TooOld++
			q.remove(m)
		}
	}
}

// delete follows DeleteMessage. In a standard queue a handle deletes its message until the message
// is received again. After that a delete with the older handle returns OK and the message stays. A
// FIFO queue refuses a handle whose visibility timeout has passed. Both return OK if the message is
// gone.
func (q *queue) delete(handle string, now time.Time) *Error {
	parsed, failed := parseHandle(q.name, handle)
	if failed != nil {
		return failed
	}
	q.advance(now)
	m := q.all[parsed.number]
	switch {
	case m == nil:
		return nil
	case now.Sub(parsed.received) > maxVisibility:
		return expiredHandle(handle)
	case q.fifo != nil && (m.handle != handle || m.state != inFlight):
		return expiredHandle(handle)
	case m.handle != handle:
		return nil
	}
	if lose := q.server.faults.Load().LoseDelete; lose != nil && lose(q.arrival(m)) {
		q.stats.LostDeletes++
		return nil
	}
	q.remove(m)
	q.stats.Deleted++
	return nil
}

// changeVisibility follows ChangeMessageVisibility. The new timeout runs from now, for this receive
// only, up to twelve hours after the receive. A longer one is refused, not shortened.
func (q *queue) changeVisibility(handle string, seconds int, now time.Time) *Error {
	if seconds < 0 || seconds > int(maxVisibility/time.Second) {
		return invalidParameter(seconds, "VisibilityTimeout",
			"VisibilityTimeout must be an integer between 0 and 43200.")
	}
	parsed, failed := parseHandle(q.name, handle)
	if failed != nil {
		return failed
	}
	q.advance(now)
	m := q.all[parsed.number]
	if m == nil || m.handle != handle || m.state != inFlight {
		return notInFlight(handle)
	}
	due := now.Add(time.Duration(seconds) * time.Second)
	if due.Sub(m.last) > maxVisibility {
		return invalidParameter(seconds, "VisibilityTimeout",
			"Total VisibilityTimeout for the message is beyond the limit [43200 seconds].")
	}
	m.changed = true
	q.wait(m, due)
	q.advance(now)
	return nil
}

// purge removes all messages, including those in flight.
func (q *queue) purge(now time.Time) *Error {
	if !q.purged.IsZero() && now.Sub(q.purged) < purgeEvery {
		return failure("PurgeQueueInProgress", legacy+"PurgeQueueInProgress",
			"Only one PurgeQueue operation on %s is allowed every %d seconds.", q.name, int(purgeEvery/time.Second))
	}
	q.purged = now
	q.stats.Purged += int64(len(q.all))
	for _, m := range q.all {
		q.remove(m)
	}
	return nil
}

// timers is a heap of messages by due time, for container/heap.
type timers []*message

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timed, t[j].timed = i, j
}
func (t *timers) Push(x any) {
	m := x.(*message)
	m.timed = len(*t)
	*t = append(*t, m)
}
func (t *timers) Pop() any {
	old := *t
	m := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	m.timed = -1
	return m
}
