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

// A producer that finds nothing polls a few times in quick succession, then asks to be announced as asleep, looks once more, and polls on at longer
// and longer pauses. While it is announced, whoever enqueues notifies the presence connection, which takes the announcement back and
// kicks the producer (docs/decisions/0050-wake-ups.md). Without a presence connection it only polls.

const (
	// idleLong is for how long a producer finds nothing before it asks: about three brief polls. A
	// queue that is busy but not full is found empty again and again. Were each of these moments
	// announced, most enqueues would notify, and transactions that notify commit one at a time.
	idleLong = 60 * time.Millisecond
	// mostVain bounds the doubling of idleLong: of a queue whose producers are woken in vain again
	// and again, because it is paused, the jobs are of other kinds, or another worker is faster,
	// one is announced about once a second.
	mostVain = 4
	// calmPoll is the pause after a notification that was for another worker of the queue.
	calmPoll = 8 * briefPoll
	// askAgain is the pause after which a producer asks again that was refused, because another worker of the queue is announced. What wakes that
	// one makes it ask sooner.
	askAgain = 2 * time.Second
)

// idleness is what a producer knows of its own sleep.
type idleness struct {
	since time.Time // when it first found nothing; zero: it found something last
	vain  int       // notifications since it last found something
	asked bool      // to be announced
	again time.Time // when it may ask once more
	woken bool      // what ended its last pause was a notification
	// The presence connection sets these: it is announced; a notification has come; that has ended its announcement, and not another worker's.
	asleep, heard, own atomic.Bool
	beside             atomic.Int64 // jobs that a slow pass has found since the producer looked
}

// idle notes that a claim found nothing.
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

// found notes that a claim found so many jobs.
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

// busy notes that a claim found something, or that the producer ends.
func (p *producer) busy() {
	p.idleness.since, p.idleness.vain, p.idleness.again, p.idleness.woken = time.Time{}, 0, time.Time{}, false
	if p.idleness.asked {
		p.idleness.asked = false
		p.w.announcer.ask(p, false)
	}
}

// longer is the pause after this one. After a notification it is shorter again: until a producer is announced anew only polls find what comes.
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

// announcer carries what the producers ask for to the presence connection.
type announcer struct {
	mu    sync.Mutex
	asked map[*producer]bool // to be announced, or to have that taken back
	poke  func()             // ends the wait of the presence connection

	woken, polled atomic.Int64 // how often a producer that was idle found jobs, after a notification and by a poll
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

// take returns what was asked for since the last call, and has the next ask call poke.
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

// A listener is a presence connection as the producers' announcements see it, which end with it.
type listener struct {
	conn    *pgx.Conn
	signals map[*producer]string // payloads that mean its queue
}

// notified does what the producers ask for and waits for a notification; nil, if a producer asks for something meanwhile.
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
		err = nil // poked
	}
	return n, err
}

// announce says that producers are asleep, and kicks them to look once more: an enqueue that committed just before sent no notification.
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

// wake kicks the producers that a notification means, and takes back what they have announced.
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

// withdraw takes back that producers are asleep.
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

// close forgets what was announced on the connection, which has ended.
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
