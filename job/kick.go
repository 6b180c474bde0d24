package job

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/txn"
)

// Kick tells the workers of some queues, in whatever process, that there are jobs, so that they need not wait for their next
// poll. Call it when your transaction has committed, with the pool it came from. It does not wait: the hint is sent beside the
// caller, and calls that come meanwhile share the next one, so that however many transactions commit, few notifications are sent.
// Who misses it polls. For a worker of this process [Worker.Kick] does without the database.
//
// A transaction of Pawl's own, such as that of [HandleTx], of a flow or of a command, kicks by itself: see [KickAfter].
//
// Workers listen on their presence connection, so one with Presence.Off hears nothing.
func Kick(db DB, queues ...string) { kicks.add(db, queues) }

// KickAfter kicks when the transaction of db commits, and reports whether it will: true for one that a handler of Pawl was
// lent. Of any other transaction only its owner knows the end. It is for packages that enqueue on behalf of others.
func KickAfter(db DB, queues ...string) bool {
	return txn.AfterCommit(db, func(pool DB) { Kick(pool, queues...) })
}

// kicks of this process.
var kicks kicker

// A kicker sends one notification at a time to each database; what comes meanwhile goes along with the next.
type kicker struct {
	mu      sync.Mutex
	waiting map[DB][]string // the databases with a sender, and what it is to send next
}

func (k *kicker) add(db DB, queues []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting == nil {
		k.waiting = map[DB][]string{}
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
	// maxKicks bounds the queues of one notification; job_kick takes no more. Who is left out polls.
	maxKicks = 1000
	// kickPause is how long the next notification waits for others to share it: each is a commit and wakes every listener.
	kickPause = 5 * time.Millisecond
)

func (k *kicker) sendAll(db DB) {
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
		ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
		_ = contract.JobKick(ctx, db, now) // a hint; who misses it polls
		cancel()
		time.Sleep(kickPause)
	}
}
