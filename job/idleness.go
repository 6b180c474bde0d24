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
	// drowsy is for how long a producer finds nothing before it asks: about three brief polls. A queue that is busy but not full is found empty
	// again and again. Were each of these moments announced, most enqueues would notify, and transactions that notify commit one at a time.
	drowsy = 60 * time.Millisecond
	// mostVain bounds the doubling of drowsy: of a queue whose producers are woken in vain again and again, because it is paused, the jobs are of other
	// kinds, or another worker is faster, one is announced about once a second.
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

// idle is told that a claim found nothing.
func (l *producer) idle() {
	now := time.Now()
	if l.idleness.since.IsZero() {
		l.idleness.since = now
	}
	if l.idleness.asleep.Load() || now.Before(l.idleness.again) || now.Sub(l.idleness.since) < drowsy<<min(l.idleness.vain, mostVain) {
		return
	}
	l.idleness.asked, l.idleness.again = true, now.Add(askAgain)
	l.w.announcer.ask(l, true)
}

// found is told that a claim found so many jobs.
func (l *producer) found(ctx context.Context, jobs int) {
	switch {
	case l.idleness.woken:
		l.w.announcer.woken.Add(1)
		l.w.emit(ctx, pawl.Event{Kind: pawl.EventWoken, Op: "job.claim", Scope: l.queue.Name, Count: jobs})
	case !l.idleness.since.IsZero() && time.Since(l.idleness.since) >= drowsy:
		l.w.announcer.polled.Add(1)
		l.w.emit(ctx, pawl.Event{Kind: pawl.EventPolled, Op: "job.claim", Scope: l.queue.Name, Count: jobs})
	}
	l.busy()
}

// busy is told that a claim found something, or that the producer ends.
func (l *producer) busy() {
	l.idleness.since, l.idleness.vain, l.idleness.again, l.idleness.woken = time.Time{}, 0, time.Time{}, false
	if l.idleness.asked {
		l.idleness.asked = false
		l.w.announcer.ask(l, false)
	}
}

// longer is the pause after this one. After a notification it is shorter again: until a producer is announced anew only polls find what comes.
func (l *producer) longer(pause time.Duration) time.Duration {
	pause = min(2*pause, l.w.cfg.Poll)
	if l.idleness.woken = l.idleness.heard.Swap(false); !l.idleness.woken {
		return pause
	}
	l.idleness.since, l.idleness.again = time.Time{}, time.Time{}
	l.idleness.vain++
	if l.idleness.own.Swap(false) {
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

func (s *announcer) ask(l *producer, asleep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked = map[*producer]bool{}
	}
	s.asked[l] = asleep
	if s.poke != nil {
		s.poke()
	}
}

// take returns what was asked for since the last call, and has the next ask call poke.
func (s *announcer) take(poke func()) (asleep, awake []*producer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l, down := range s.asked {
		if down {
			asleep = append(asleep, l)
		} else {
			awake = append(awake, l)
		}
	}
	clear(s.asked)
	s.poke = poke
	return asleep, awake
}

// A listener is a presence connection as the producers' announcements see it, which end with it.
type listener struct {
	conn    *pgx.Conn
	signals map[*producer]string // payloads that mean its queue
}

// notified does what the producers ask for and waits for a notification; nil, if a producer asks for something meanwhile.
func (w *Worker) notified(ctx context.Context, b *listener) (*pgconn.Notification, error) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	asleep, awake := w.announcer.take(stop)
	err := w.rise(ctx, b, awake)
	if err == nil {
		err = w.announce(ctx, b, asleep)
	}
	if err != nil {
		return nil, err
	}
	n, err := b.conn.WaitForNotification(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil && !b.conn.IsClosed() {
		err = nil // poked
	}
	return n, err
}

// announce says that producers are asleep, and kicks them to look once more: an enqueue that committed just before sent no notification.
func (w *Worker) announce(ctx context.Context, b *listener, asleep []*producer) error {
	if len(asleep) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
	defer cancel()
	rows, err := contract.WorkerAsleep(ctx, b.conn, namesOf(asleep))
	if err != nil {
		return err
	}
	for _, r := range rows {
		l := asleep[slices.IndexFunc(asleep, func(l *producer) bool { return l.queue.Name == r.Queue })]
		b.signals[l] = r.Signal
		if r.Outcome == "asleep" {
			l.idleness.asleep.Store(true)
			l.kickNow()
		}
	}
	return nil
}

// wake kicks the producers that a notification means, and takes back what they have announced.
func (w *Worker) wake(ctx context.Context, b *listener, signal string) error {
	if signal == kick.Schedules {
		kick.Keepers()
		return nil
	}
	var awake []*producer
	for l, s := range b.signals {
		if s != signal {
			continue
		}
		if l.idleness.asleep.Load() {
			l.idleness.own.Store(true)
			awake = append(awake, l)
		}
		l.idleness.heard.Store(true)
		l.kickNow()
	}
	return w.rise(ctx, b, awake)
}

// rise takes back that producers are asleep.
func (w *Worker) rise(ctx context.Context, b *listener, awake []*producer) error {
	var announced []*producer
	for _, l := range awake {
		if l.idleness.asleep.Swap(false) {
			announced = append(announced, l)
		}
	}
	if len(announced) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
	defer cancel()
	return contract.WorkerAwake(ctx, b.conn, namesOf(announced))
}

// close forgets what was announced on the connection, which has ended.
func (b *listener) close() {
	for l := range b.signals {
		l.idleness.asleep.Store(false)
	}
}

func namesOf(lines []*producer) []string {
	names := make([]string, len(lines))
	for i, l := range lines {
		names[i] = l.queue.Name
	}
	return names
}
