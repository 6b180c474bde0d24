package pawltest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
)

// stall runs a process that stalls before a statement. Another process works meanwhile, and a third
// does what is left. A stall after a statement is one before the next. reached is false if the
// process did not reach the statement.
func (c crashCase) stall(tb testing.TB, at int, want contents) (fine, reached bool) {
	tb.Helper()
	fine = c.on(tb, "without a stall", want, func(ctx context.Context, t *trial) (contents, error) {
		p, work, err := t.start(ctx, 0)
		if err != nil {
			return nil, err
		}
		stalled, resume := p.stall(at)
		defer resume()
		ended := make(chan error, 1)
		go func() {
			_, err := work(ctx)
			ended <- err
		}()
		select {
		case <-stalled:
		case err := <-ended:
			if err != nil {
				return nil, err
			}
			return once(ctx, t)
		}
		reached = true
		t.said.name = p.last()
		if err := t.settles(ctx, p.name); err != nil {
			return nil, err
		}
		left, err := t.takeOver(ctx, p, resume, want)
		if err != nil {
			return nil, err
		}
		resume()
		<-ended // its error may say that it was refused
		if err := t.overwrote(ctx, left); err != nil {
			return nil, err
		}
		return once(ctx, t)
	})
	return fine, reached
}

// takeOver runs another process while p is stalled. If the other waits for a lock of p, or neither
// works in the database nor ends, p goes on. takeOver returns what the other left, or nil if it did
// not complete the work alone.
func (t *trial) takeOver(ctx context.Context, p *process, resume func(), want contents) (left contents, err error) {
	t.stalling.Store(true)
	defer t.stalling.Store(false)
	var alone bool
	var watch sync.WaitGroup
	ended, other := make(chan struct{}), t.next()
	watch.Go(func() {
		if alone = t.endsAlone(ctx, p.name, other, ended); !alone {
			t.stalling.Store(false)
			resume()
		}
	})
	failed := func() error {
		defer close(ended)
		of, work, err := t.start(ctx, 0)
		if err == nil {
			err = expire(ctx, of.own)
		}
		if err == nil {
			_, err = work(ctx)
		}
		return err
	}()
	watch.Wait()
	if failed != nil || !alone { // it may have failed because of a lock of p
		return nil, nil
	}
	got, err := read(ctx, t.eyes, nil, want.without())
	if err != nil || len(got.unlike(want)) > 0 {
		return nil, err
	}
	return read(ctx, t.eyes, nil, t.ignore)
}

// settles waits until the statements that a stalled process has sent have ended or wait for a lock.
// So no heartbeat under way renews a lease that Make moves.
func (t *trial) settles(ctx context.Context, stalled string) error {
	for range mostLooks {
		var busy bool
		err := t.eyes.QueryRow(ctx, "select exists (select from pg_stat_activity where datname = current_database() and application_name = $1 "+
			"and state = 'active' and wait_event_type is distinct from 'Lock')", stalled).Scan(&busy)
		if err != nil || !busy || !pace.Sleep(ctx, 10*time.Millisecond) {
			return err
		}
	}
	return nil
}

// endsAlone reports whether a process ends while another is stalled. It returns false if the
// process waits for a lock of the stalled one, or is idle in the database for long.
func (t *trial) endsAlone(ctx context.Context, stalled, other string, ended <-chan struct{}) bool {
	for looks := 0; looks < mostLooks; {
		var waits, busy bool
		err := t.eyes.QueryRow(ctx, "select coalesce(bool_or(exists (select from pg_stat_activity as s where s.application_name = $1 "+
			"and s.pid = any(pg_blocking_pids(a.pid)))), false), coalesce(bool_or(a.state = 'active'), false) "+
			"from pg_stat_activity as a where a.datname = current_database() and a.application_name = $2", stalled, other).Scan(&waits, &busy)
		if err != nil || waits {
			return false
		}
		if !busy {
			looks++
		}
		select {
		case <-ended:
			return true
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

// overwrote fails the trial if the stalled process changed rows after another process had completed
// the work and left them. This includes columns that differ between two undisturbed runs, since the
// other's values must stay.
func (t *trial) overwrote(ctx context.Context, left contents) error {
	if left == nil {
		return nil
	}
	now, err := read(ctx, t.eyes, nil, t.ignore)
	if err != nil {
		return err
	}
	columns := slices.DeleteFunc(now.differing(left), func(column string) bool { return slices.Contains(left.without(), column) })
	if len(columns) > 0 {
		slices.Sort(columns)
		t.said.Errorf("another process completed the work, and then this one changed %s", strings.Join(columns, ", "))
	}
	return nil
}

// stall makes the process stall before its nth statement from now, until resume is called. In a
// stalled process no connection sends anything.
func (p *process) stall(n int) (stalled <-chan struct{}, resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stallAt, p.stalled, p.resumed = n, make(chan struct{}), make(chan struct{})
	return p.stalled, sync.OnceFunc(func() { close(p.resumed) })
}

// mayStall counts a statement, and stalls the process if it is the one to stall before.
func (p *process) mayStall(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stallAt == 0 {
		return
	}
	if p.stallAt--; p.stallAt == 0 {
		p.hit = fmt.Sprint("stall before ", shortened(text))
		close(p.stalled)
	}
}

// await waits until the process is not stalled.
func (p *process) await() {
	p.mu.Lock()
	stalled, resumed := p.stalled, p.resumed
	p.mu.Unlock()
	select {
	case <-stalled:
		<-resumed
	default:
	}
}
