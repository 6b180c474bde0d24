package flow

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/solo"
)

const (
	// deathsAsked is how long the answer to the question when a process of this consumer last died is believed.
	deathsAsked = time.Second
	// deathsPatience bounds that question.
	deathsPatience = 5 * time.Second
	// clockSkew is how far the clock of whoever says when a message was sent may be ahead of the database's.
	clockSkew = time.Minute
)

// suspected reports whether a delivery may have killed the process that had it: it has come often without leaving a row, and a
// process of this consumer has died since it was sent, or when it was sent is not known. Without a death it came often for another
// reason: an outage, a slow first copy, a busy resource.
func (f *Flow) suspected(ctx context.Context, d pawl.Delivery) (bool, error) {
	switch {
	case d.Receives < f.cfg.SoloAfter:
		return false, nil
	case f.cfg.SoloAfter == 1:
		return true, nil // they asked for it
	}
	died, err := f.deaths.last(ctx, f)
	if err != nil || died == nil {
		return false, err
	}
	return d.SentAt.IsZero() || died.Add(clockSkew).After(d.SentAt), nil
}

// deaths remembers when a process of this consumer last died.
type deaths struct {
	mu    sync.Mutex
	asked time.Time
	died  *time.Time // nil: none is known to have
}

func (m *deaths) last(ctx context.Context, f *Flow) (*time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.asked.IsZero() && time.Since(m.asked) < deathsAsked {
		return m.died, nil
	}
	ctx, cancel := context.WithTimeout(ctx, deathsPatience)
	defer cancel()
	died, err := inbox.LastDeath(ctx, f.pool, f.queue)
	if err == nil {
		m.asked, m.died = time.Now(), died
	}
	return died, err
}

// awaitWorker waits until this process is known to the database: only then can its death be.
func (f *Flow) awaitWorker(ctx context.Context) {
	if f.cfg.Trigger != nil {
		return // nothing lands, so nothing is suspected
	}
	select {
	case <-f.retries.Ready():
	case <-ctx.Done():
	}
}

// landBusy lands a delivery whose resource was busy each time it came: it is tried again from the database, and nothing is suspected.
func (f *Flow) landBusy(ctx context.Context, tx pgx.Tx, claim inbox.Claim, it item, why error) (pawl.Receipt, error) {
	l := f.untried()
	l.RetryIn = jittered(time.Second)
	return f.landIn(ctx, tx, claim, it, l, pawl.EventLanded, why)
}

// enter lets a delivery, or a batch, into the process's gate. leave ends its stay; only the first call does anything.
func (f *Flow) enter(ctx context.Context) (leave func(), err error) {
	if err := solo.Process.Enter(ctx, 1); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { solo.Process.Leave(1) }), nil
}

// watch ends the stay of a handler that ignores the end of its context. Its goroutine and its connection stay taken until it returns.
func (f *Flow) watch(ctx context.Context, leave func()) *time.Timer {
	return solo.Abandon(f.cfg.Timeout+abandonAfter, func() {
		leave()
		f.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "flow.handle", Err: errIgnored})
	})
}

var errIgnored = errors.New("the handler ignores the end of its context")
