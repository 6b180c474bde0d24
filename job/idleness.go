package job

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/kick"
)

// A producer that finds no job polls a few times in quick succession. Then it asks to be announced
// as asleep, claims once more, and polls at longer and longer pauses. While it is announced, an
// enqueue notifies the presence connection, which withdraws the announcement and kicks the producer
// (docs/decisions/0050-wake-ups.md). Without that connection it only polls.

const (
	// idleLong is how long a producer finds no job before it asks: about three brief polls. A queue
	// that is busy but not full is often empty for a moment. If each such moment were announced,
	// most enqueues would notify, and transactions that notify commit one at a time.
	idleLong = 60 * time.Millisecond
	// mostVain bounds the doubling of idleLong. A queue's producers are woken in vain if it is
	// paused, its jobs are of other kinds, or another worker is faster. With the bound, one
	// producer of such a queue is announced about once a second.
	mostVain = 4
	// calmPoll bounds the pause after a notification for another worker of the queue.
	calmPoll = 8 * briefPoll
	// askAgain is the pause before a producer asks again because another worker of the queue is
	// announced. A notification for that worker makes it ask sooner.
	askAgain = 2 * time.Second
)

// idleness is the state of an idle producer.
type idleness struct {
	since time.Time // of the first empty claim; zero after a claim with jobs
	vain  int       // notifications since the last claim with jobs
	asked bool      // has asked to be announced
	again time.Time // earliest time to ask again
	woken bool      // a notification ended the last pause
	// The presence connection sets these. asleep: the producer is announced. heard: a notification
	// came. own: it ended this producer's announcement.
	asleep, heard, own atomic.Bool
	beside             atomic.Int64 // jobs claimed in the background since the last claim
}

// idle records an empty claim.
func (p *producer) idle() {
	now := time.Now()
	if p.idleness.since.IsZero() {
		p.idleness.since = now
	}
	if p.idleness.asleep.Load() || now.Before(p.idleness.again) || now.Sub(p.idleness.since) < idleLong<<min(p.idleness.vain, mostVain) {
		return
	}
	p.idleness.asked, p.idleness.again = true, now.Add(askAgain)
	p.w.announcer.ask(p, true)
}

// found records a claim with jobs.
func (p *producer) found(ctx context.Context, jobs int) {
	switch {
	case p.idleness.woken:
		p.w.announcer.woken.Add(1)
		p.w.emit(ctx, pawl.Event{Kind: pawl.EventWoken, Op: "job.claim", Scope: p.queue.Name, Count: jobs})
	case !p.idleness.since.IsZero() && time.Since(p.idleness.since) >= idleLong:
		p.w.announcer.polled.Add(1)
		p.w.emit(ctx, pawl.Event{Kind: pawl.EventPolled, Op: "job.claim", Scope: p.queue.Name, Count: jobs})
	}
	p.busy()
}

// busy records that a claim found jobs, or that the producer ends.
func (p *producer) busy() {
	p.idleness.since, p.idleness.vain, p.idleness.again, p.idleness.woken = time.Time{}, 0, time.Time{}, false
	if p.idleness.asked {
		p.idleness.asked = false
		p.w.announcer.ask(p, false)
	}
}

// longer returns the next pause. It is short after a notification: only polls find jobs then.
func (p *producer) longer(pause time.Duration) time.Duration {
	pause = min(2*pause, p.w.cfg.Poll)
	if p.idleness.woken = p.idleness.heard.Swap(false); !p.idleness.woken {
		return pause
	}
	p.idleness.since, p.idleness.again = time.Time{}, time.Time{}
	p.idleness.vain++
	if p.idleness.own.Swap(false) {
		return briefPoll
	}
	return min(pause, calmPoll)
}

// announcer passes requests of producers to the presence connection.
type announcer struct {
	mu    sync.Mutex
	asked map[*producer]bool // true: announce; false: withdraw
	poke  func()             // ends the presence connection's wait for notifications

	// How often an idle producer found jobs after a notification, and by a poll.
	woken, polled atomic.Int64
}

func (a *announcer) ask(p *producer, asleep bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked == nil {
		a.asked = map[*producer]bool{}
	}
	a.asked[p] = asleep
	if a.poke != nil {
		a.poke()
	}
}

// take returns the requests since the last call, and makes the next ask call poke.
func (a *announcer) take(poke func()) (asleep, awake []*producer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, down := range a.asked {
		if down {
			asleep = append(asleep, p)
		} else {
			awake = append(awake, p)
		}
	}
	clear(a.asked)
	a.poke = poke
	return asleep, awake
}

// A listener holds the announcements on a presence connection. They end with the connection.
type listener struct {
	conn    *pgx.Conn
	signals map[*producer]string // the notification payload of its queue
}

// notified handles requests and waits for a notification. Nil: another request came first.
func (w *Worker) notified(ctx context.Context, l *listener) (*pgconn.Notification, error) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	asleep, awake := w.announcer.take(stop)
	err := w.withdraw(ctx, l, awake)
	if err == nil {
		err = w.announce(ctx, l, asleep)
	}
	if err != nil {
		return nil, err
	}
	n, err := l.conn.WaitForNotification(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil && !l.conn.IsClosed() {
		err = nil // by poke
	}
	return n, err
}

// announce announces producers as asleep and kicks them to claim once more. An enqueue that
// committed just before the announcement did not notify.
func (w *Worker) announce(ctx context.Context, l *listener, asleep []*producer) error {
	if len(asleep) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementLimit)
	defer cancel()
	rows, err := contract.WorkerAsleep(ctx, l.conn, namesOf(asleep))
	if err != nil {
		return err
	}
	for _, r := range rows {
		p := asleep[slices.IndexFunc(asleep, func(p *producer) bool { return p.queue.Name == r.Queue })]
		l.signals[p] = r.Signal
		if r.Outcome == "asleep" {
			p.idleness.asleep.Store(true)
			p.kickNow()
		}
	}
	return nil
}

// wake kicks the producers of the notified queue and withdraws their announcements.
func (w *Worker) wake(ctx context.Context, l *listener, signal string) error {
	if signal == kick.Schedules {
		kick.Keepers()
		return nil
	}
	var awake []*producer
	for p, s := range l.signals {
		if s != signal {
			continue
		}
		if p.idleness.asleep.Load() {
			p.idleness.own.Store(true)
			awake = append(awake, p)
		}
		p.idleness.heard.Store(true)
		p.kickNow()
	}
	return w.withdraw(ctx, l, awake)
}

// withdraw ends announcements.
func (w *Worker) withdraw(ctx context.Context, l *listener, awake []*producer) error {
	var announced []*producer
	for _, p := range awake {
		if p.idleness.asleep.Swap(false) {
			announced = append(announced, p)
		}
	}
	if len(announced) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementLimit)
	defer cancel()
	return contract.WorkerAwake(ctx, l.conn, namesOf(announced))
}

// close marks all producers as not announced, after the connection has ended.
func (l *listener) close() {
	for p := range l.signals {
		p.idleness.asleep.Store(false)
	}
}

func namesOf(producers []*producer) []string {
	names := make([]string, len(producers))
	for i, p := range producers {
		names[i] = p.queue.Name
	}
	return names
}
