// Package kick sends the hint that jobs were enqueued, at most one at a time to each database.
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

// Workers tells the workers of some queues that there are jobs: see job.Kick.
func Workers(db pawl.DB, queues ...string) { kicks.add(db, queues) }

// AfterCommit tells them when the transaction of db commits, and reports whether it will: true for one that a handler of Pawl was
// lent. Of any other transaction only its owner knows the end.
func AfterCommit(db pawl.DB, queues ...string) bool {
	return txn.AfterCommit(db, func(pool pawl.DB) { Workers(pool, queues...) })
}

// kicks of this process.
var kicks kicker

// A kicker sends one notification at a time to each database; what comes meanwhile goes along with the next.
type kicker struct {
	mu      sync.Mutex
	waiting map[pawl.DB][]string // the databases with a sender, and what it is to send next
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
	// maxKicks bounds the queues of one notification; job_kick takes no more. A queue that is left out is polled.
	maxKicks = 1000
	// kickPause is how long the next notification waits for others to share it: each is a commit and wakes every listener.
	kickPause = 5 * time.Millisecond
	// sendLimit is how long a notification may take.
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
		_ = contract.JobKick(ctx, db, now) // a hint; a worker that misses it polls
		cancel()
		time.Sleep(kickPause)
	}
}
