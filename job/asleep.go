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

// A line that finds nothing polls a few times in quick succession, then asks to be announced as asleep, looks once more, and polls on at longer
// and longer pauses. While it is announced, whoever enqueues notifies the presence connection, which takes the announcement back and
// kicks the line (docs/decisions/0050-wake-ups.md). Without a presence connection it only polls.

const (
	// drowsy is for how long a line finds nothing before it asks: about three brief polls. A queue that is busy but not full is found empty
	// again and again. Were each of these moments announced, most enqueues would notify, and transactions that notify commit one at a time.
	drowsy = 60 * time.Millisecond
	// mostVain bounds the doubling of drowsy: of a queue whose lines are woken in vain again and again, because it is paused, the jobs are of other
	// kinds, or another worker is faster, one is announced about once a second.
	mostVain = 4
	// calmPoll is the pause after a notification that was for another worker of the queue.
	calmPoll = 8 * briefPoll
	// askAgain is the pause after which a line asks again that was refused, because another worker of the queue is announced. What wakes that
	// one makes it ask sooner.
	askAgain = 2 * time.Second
)

// A doze is what a line knows of its own sleep.
type doze struct {
	since time.Time // when it first found nothing; zero: it found something last
	vain  int       // notifications since it last found something
	asked bool      // to be announced
	again time.Time // when it may ask once more
	woken bool      // what ended its last pause was a notification
	// The presence connection sets these: it is announced; a notification has come; that has ended its announcement, and not another worker's.
	asleep, heard, own atomic.Bool
	beside             atomic.Int64 // jobs that a slow pass has found since the line looked
}

// idle is told that a claim found nothing.
func (l *line) idle() {
	now := time.Now()
	if l.doze.since.IsZero() {
		l.doze.since = now
	}
	if l.doze.asleep.Load() || now.Before(l.doze.again) || now.Sub(l.doze.since) < drowsy<<min(l.doze.vain, mostVain) {
		return
	}
	l.doze.asked, l.doze.again = true, now.Add(askAgain)
	l.w.sleepers.ask(l, true)
}

// found is told that a claim found so many jobs.
func (l *line) found(ctx context.Context, jobs int) {
	switch {
	case l.doze.woken:
		l.w.sleepers.woken.Add(1)
		l.w.emit(ctx, pawl.Event{Kind: pawl.EventWoken, Op: "job.claim", Scope: l.queue.Name, Count: jobs})
	case !l.doze.since.IsZero() && time.Since(l.doze.since) >= drowsy:
		l.w.sleepers.polled.Add(1)
		l.w.emit(ctx, pawl.Event{Kind: pawl.EventPolled, Op: "job.claim", Scope: l.queue.Name, Count: jobs})
	}
	l.busy()
}

// busy is told that a claim found something, or that the line ends.
func (l *line) busy() {
	l.doze.since, l.doze.vain, l.doze.again, l.doze.woken = time.Time{}, 0, time.Time{}, false
	if l.doze.asked {
		l.doze.asked = false
		l.w.sleepers.ask(l, false)
	}
}

// longer is the pause after this one. After a notification it is shorter again: until a line is announced anew only polls find what comes.
func (l *line) longer(pause time.Duration) time.Duration {
	pause = min(2*pause, l.w.cfg.Poll)
	if l.doze.woken = l.doze.heard.Swap(false); !l.doze.woken {
		return pause
	}
	l.doze.since, l.doze.again = time.Time{}, time.Time{}
	l.doze.vain++
	if l.doze.own.Swap(false) {
		return briefPoll
	}
	return min(pause, calmPoll)
}

// sleepers carries what the lines ask for to the presence connection.
type sleepers struct {
	mu    sync.Mutex
	asked map[*line]bool // to be announced, or to have that taken back
	poke  func()         // ends the wait of the presence connection

	woken, polled atomic.Int64 // how often a line that was idle found jobs, after a notification and by a poll
}

func (s *sleepers) ask(l *line, asleep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked = map[*line]bool{}
	}
	s.asked[l] = asleep
	if s.poke != nil {
		s.poke()
	}
}

// take returns what was asked for since the last call, and has the next ask call poke.
func (s *sleepers) take(poke func()) (asleep, awake []*line) {
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

// A bedside is a presence connection as the lines' announcements see it, which end with it.
type bedside struct {
	conn    *pgx.Conn
	signals map[*line]string // payloads that mean its queue
}

// notified does what the lines ask for and waits for a notification; nil, if a line asks for something meanwhile.
func (w *Worker) notified(ctx context.Context, b *bedside) (*pgconn.Notification, error) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	asleep, awake := w.sleepers.take(stop)
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

// announce says that lines are asleep, and kicks them to look once more: an enqueue that committed just before sent no notification.
func (w *Worker) announce(ctx context.Context, b *bedside, asleep []*line) error {
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
		l := asleep[slices.IndexFunc(asleep, func(l *line) bool { return l.queue.Name == r.Queue })]
		b.signals[l] = r.Signal
		if r.Outcome == "asleep" {
			l.doze.asleep.Store(true)
			l.kickNow()
		}
	}
	return nil
}

// wake kicks the lines that a notification means, and takes back what they have announced.
func (w *Worker) wake(ctx context.Context, b *bedside, signal string) error {
	if signal == kick.Schedules {
		kick.Keepers()
		return nil
	}
	var awake []*line
	for l, s := range b.signals {
		if s != signal {
			continue
		}
		if l.doze.asleep.Load() {
			l.doze.own.Store(true)
			awake = append(awake, l)
		}
		l.doze.heard.Store(true)
		l.kickNow()
	}
	return w.rise(ctx, b, awake)
}

// rise takes back that lines are asleep.
func (w *Worker) rise(ctx context.Context, b *bedside, awake []*line) error {
	var announced []*line
	for _, l := range awake {
		if l.doze.asleep.Swap(false) {
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
func (b *bedside) close() {
	for l := range b.signals {
		l.doze.asleep.Store(false)
	}
}

func namesOf(lines []*line) []string {
	names := make([]string, len(lines))
	for i, l := range lines {
		names[i] = l.queue.Name
	}
	return names
}
