// Package kick notifies workers that jobs were enqueued. It sends at most one notification at a
// time to each database.
package kick

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/txn"
)

// Workers notifies the workers of queues that there are jobs; see job.Kick.
func Workers(db pawl.DB, queues ...string) { kicks.add(db, queues) }

// AfterCommit notifies them after the transaction of db commits, and returns true. It returns false
// for a transaction that no handler of Pawl was lent, because Pawl does not see its end.
func AfterCommit(db pawl.DB, queues ...string) bool {
	return txn.AfterCommit(db, func(pool pawl.DB) { Workers(pool, queues...) })
}

// kicks of this process.
var kicks kicker

// A kicker sends one notification at a time to each database. Queues added meanwhile go into the
// next.
type kicker struct {
	mu      sync.Mutex
	waiting map[pawl.DB][]string // databases with a sender, and the queues to send next
}

func (k *kicker) add(db pawl.DB, queues []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting == nil {
		k.waiting = map[pawl.DB][]string{}
	}
	next, sending := k.waiting[db]
	for _, q := range queues {
		if !slices.Contains(next, q) && len(next) < maxKicks {
			next = append(next, q)
		}
	}
	k.waiting[db] = next
	if !sending {
		go k.sendAll(db)
	}
}

const (
	// maxKicks bounds the queues of one notification; job_kick accepts no more. Workers find the
	// jobs of other queues by polling.
	maxKicks = 1000
	// kickPause is how long a notification waits to collect more queues. Each notification is a
	// commit and wakes every listener.
	kickPause = 5 * time.Millisecond
	// sendLimit bounds one notification.
	sendLimit = 5 * time.Second
)

func (k *kicker) sendAll(db pawl.DB) {
	for {
		k.mu.Lock()
		now := k.waiting[db]
		if len(now) == 0 {
			delete(k.waiting, db)
			k.mu.Unlock()
			return
		}
		k.waiting[db] = nil
		k.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), sendLimit)
		_ = contract.JobKick(ctx, db, now) // only a hint: a worker that misses it polls
		cancel()
		time.Sleep(kickPause)
	}
}
