package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/fleet"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
)

// A button is a fault on the page. Both camps get it at the same moment.
type button struct {
	Name   string
	Title  string
	Worker bool // it hits one worker
	About  string
	// hit: the orders being handled, by camp
	do func(l *lab, ctx context.Context, number int) (hit map[string][]string, err error)
}

var buttons = []button{
	{"kill", "Kill", true, "SIGKILL. The process dies where it is; another one takes its place.", (*lab).kill},
	{"freeze", "Freeze", true, "SIGSTOP. The process is frozen without noticing. Its lease and its messages expire; an order whose transaction it holds open waits for it.", (*lab).freeze},
	{"wake", "Wake", true, "SIGCONT. The process continues where it stopped, and assumes that it still holds its orders.", (*lab).wake},
	{"cut", "Cut a COMMIT's reply", true, "The next COMMIT of this worker reaches the database. Its response is lost.", (*lab).cut},
	{"restart", "Crash PostgreSQL", false, "A process of the server is killed. It ends all sessions and recovers from its log; open transactions are lost.", (*lab).restart},
	{"duplicates", "Deliver duplicates", false, "The last 20 orders are sent twice more, at once.", (*lab).duplicates},
	{"lose-acks", "Lose acknowledgements", false, "For 5 seconds the queue loses acknowledgements, and delivers those messages again.", (*lab).loseAcks},
	{"pause", "Stop or go on sending", false, "No new orders are sent until you press it again.", (*lab).pause},
}

// columns are the buttons of the matrix. Freeze stands for Freeze and then Wake.
func columns() (all []button) {
	for _, b := range buttons {
		switch b.Name {
		case "wake", "pause":
			continue
		case "freeze":
			b.Title = "Freeze, Wake"
		}
		all = append(all, b)
	}
	return all
}

type press struct {
	id     int
	at     time.Time
	button button
	worker int
	hit    map[string][]string
	failed string
}

// shownPresses is the number of presses on the page; tracedOrders is the number of orders shown for
// each.
const shownPresses, tracedOrders = 8, 2

// A pressReport is a press as the page shows it.
type pressReport struct {
	ID     int      `json:"id"`
	Text   string   `json:"text"`
	Ago    float64  `json:"ago"` // seconds
	Failed string   `json:"failed,omitempty"`
	Idle   []string `json:"idle,omitempty"` // camps whose worker was handling nothing
	Traces []trace  `json:"traces"`
}

// apply handles the press of a button.
func (l *lab) apply(ctx context.Context, name, worker string) error {
	i := slices.IndexFunc(buttons, func(b button) bool { return b.Name == name })
	if i < 0 {
		return fmt.Errorf("there is no button %q", name)
	}
	f, number := buttons[i], 0
	if f.Worker {
		var err error
		if number, err = strconv.Atoi(worker); err != nil || number < 1 || number > l.Workers {
			return fmt.Errorf("the worker must be a number from 1 to %d, it is %q", l.Workers, worker)
		}
	}
	l.mu.Lock()
	ending := l.ending
	l.mu.Unlock()
	if ending {
		return errEnding
	}
	p := press{at: time.Now(), button: f, worker: number}
	hit, err := f.do(l, ctx, number)
	if p.hit = hit; err != nil {
		p.failed = err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pressed++
	p.id = l.pressed
	if l.presses = append(l.presses, p); len(l.presses) > shownPresses {
		l.presses = l.presses[1:]
	}
	return nil
}

func (p press) text() string {
	if p.button.Worker {
		return fmt.Sprintf("%s: worker %d", p.button.Title, p.worker)
	}
	return p.button.Title
}

func (l *lab) reported(p press) pressReport {
	r := pressReport{ID: p.id, Text: p.text(), Ago: round(time.Since(p.at).Seconds()), Failed: p.failed, Traces: []trace{}}
	camps := slices.Clone(l.camps) // of all ways, since another one may have stood then
	slices.Reverse(camps)          // Pawl first
	for _, c := range camps {
		keys, stood := p.hit[c.Name]
		if stood && p.button.Worker && p.failed == "" && len(keys) == 0 {
			r.Idle = append(r.Idle, c.Title)
		}
		for _, key := range keys {
			r.Traces = append(r.Traces, c.traced(key, p.at))
		}
	}
	return r
}

// strike calls do for the worker of that number in both camps at once, and notes it in the history
// of the orders being handled.
func (l *lab) strike(number int, said string, do func(c *camp) error) (hit map[string][]string, err error) {
	hit = l.inHand(number, said)
	camps := l.standing()
	errs := make([]error, len(camps))
	var all sync.WaitGroup
	for i, c := range camps {
		all.Go(func() { errs[i] = do(c) })
	}
	all.Wait()
	return hit, cmp.Or(errs...)
}

// inHand returns the first orders that the worker is handling, by camp; for worker 0, those of all
// workers. It notes what hit them in their history.
func (l *lab) inHand(number int, said string) map[string][]string {
	hit := map[string][]string{}
	for _, c := range l.standing() {
		keys := c.holds(number)
		keys = keys[:min(len(keys), tracedOrders)]
		for _, key := range keys {
			if said != "" {
				c.note(key, number, said)
			}
		}
		hit[c.Name] = keys
	}
	return hit
}

var (
	errAway = errors.New("that worker is just being replaced")
	errBusy = errors.New("it is being restarted already")

	errEnding = errors.New("the lab is ending: it waits until all orders are settled")
)

// signal calls do for the process of that number in both camps.
func (l *lab) signal(number int, said string, do func(c *camp, w *fleet.Worker) bool) (map[string][]string, error) {
	return l.strike(number, said, func(c *camp) error {
		if w := c.worker(number); w == nil || !do(c, w) {
			return errAway
		}
		return nil
	})
}

func (l *lab) kill(_ context.Context, number int) (map[string][]string, error) {
	return l.signal(number, "SIGKILL", func(c *camp, w *fleet.Worker) bool {
		c.crew().Doom(w)
		c.crew().Kill(w)
		c.died(number)
		return true
	})
}

func (l *lab) freeze(_ context.Context, number int) (map[string][]string, error) {
	return l.signal(number, "SIGSTOP", func(c *camp, w *fleet.Worker) bool { return c.crew().Freeze(w) })
}

func (l *lab) wake(_ context.Context, number int) (map[string][]string, error) {
	return l.signal(number, "SIGCONT", func(c *camp, w *fleet.Worker) bool { return c.crew().Wake(w) })
}

func (l *lab) cut(_ context.Context, number int) (map[string][]string, error) {
	return l.strike(number, "the reply to its next COMMIT will be cut", func(c *camp) error {
		var once sync.Once
		c.proxies[number-1].OnCommit(func() (fate wireproxy.Cut) {
			once.Do(func() { fate = wireproxy.BeforeReply })
			return fate
		})
		return nil
	})
}

func (l *lab) restart(ctx context.Context, _ int) (map[string][]string, error) {
	l.mu.Lock()
	busy := l.down
	l.down = true
	l.mu.Unlock()
	if busy {
		return nil, errBusy
	}
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.down = false
	}()
	return l.inHand(0, "PostgreSQL crashes, and recovers"), l.crash(context.WithoutCancel(ctx))
}

const recovers = time.Minute

// crash kills a process of the server. The server then ends all sessions and recovers from its log.
// It goes on serving until it notices the death, so crash first waits until another session ends.
func (l *lab) crash(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recovers)
	defer cancel()
	victim, err := l.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer victim.Release()
	witness, err := l.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer witness.Release()
	if err = syscall.Kill(int(victim.Conn().PgConn().PID()), syscall.SIGKILL); err != nil {
		return err
	}
	for err == nil {
		time.Sleep(5 * time.Millisecond)
		_, err = witness.Exec(ctx, "select 1")
	}
	for {
		l.pool.Reset()
		if _, err = l.pool.Exec(ctx, "select 1"); err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// repeated is the number of orders sent again; times is how often each.
const repeated, times = 20, 2

func (l *lab) duplicates(ctx context.Context, _ int) (map[string][]string, error) {
	l.mu.Lock()
	last := l.sent
	l.mu.Unlock()
	hit := map[string][]string{}
	var all sync.WaitGroup
	for n := max(1, last-repeated+1); n <= last; n++ {
		key := orderKey(n)
		for _, c := range l.standing() {
			if !c.had(key) { // it was sent to another way
				continue
			}
			if n > last-tracedOrders {
				hit[c.Name] = append(hit[c.Name], key)
			}
			c.note(key, 0, fmt.Sprintf("sent %d times more", times))
			for range times {
				all.Go(func() { l.send(ctx, c, key) })
			}
		}
	}
	all.Wait()
	return hit, nil
}

func (l *lab) loseAcks(context.Context, int) (map[string][]string, error) {
	l.mu.Lock()
	l.loseUntil = time.Now().Add(5 * time.Second)
	l.mu.Unlock()
	return l.inHand(0, ""), nil
}

func (l *lab) pause(context.Context, int) (map[string][]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused = !l.paused
	return nil, nil
}
