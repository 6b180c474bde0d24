package service

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
)

const (
	purgeEvery = 10 * time.Minute // between purges; two calls each, if nothing is due
	countEvery = time.Minute      // between writes of counted replays; none if there are none
	houseLimit = 5 * time.Second  // for one call
	mostScopes = 10_000           // in one call of command_replayed
)

// A housekeeper does the recurring work for commands and steps, which no other part does: it purges
// those whose retention is over, and counts replays for the view pawl_v1.suppression_by_scope. Each
// app has one. Purges of several apps skip rows that another has locked.
type housekeeper struct {
	pool       *pgxpool.Pool
	purgeEvery time.Duration

	mu      sync.Mutex
	replays map[string]int64 // by scope, not written yet
}

func newHousekeeper(pool *pgxpool.Pool) *housekeeper {
	return &housekeeper{pool: pool, purgeEvery: purgeEvery, replays: map[string]int64{}}
}

// hooks returns hooks that count replays, and call h.
func (k *housekeeper) hooks(h pawl.Hooks) pawl.Hooks {
	return pawl.Join(h, pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Kind == pawl.EventReplay {
			k.count(e.Scope, 1)
		}
	}})
}

func (k *housekeeper) count(scope string, n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replays[scope] += n
}

// keep works until ctx ends.
func (k *housekeeper) keep(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		for pace.Sleep(ctx, countEvery) {
			k.writeReplays(ctx)
		}
	})
	for pace.Sleep(ctx, pace.Jittered(k.purgeEvery)) {
		k.purge(ctx, "command.purge", contract.CommandPurge)
		k.purge(ctx, "step.purge", contract.StepPurge)
	}
}

type purge = func(ctx context.Context, db contract.DB, a contract.PurgeArgs) (contract.PurgeRow, error)

// purge deletes batch after batch. Each takes about 20 ms, and purge pauses four times as long.
func (k *housekeeper) purge(ctx context.Context, op string, some purge) {
	var size pace.Pace
	for next := ""; ; {
		began, batch := time.Now(), size.Rows()
		limited, cancel := context.WithTimeout(ctx, houseLimit)
		row, err := some(limited, k.pool, contract.PurgeArgs{OlderThan: -1, Limit: batch, Since: next})
		cancel()
		size.Took(time.Since(began))
		if err != nil && ctx.Err() == nil {
			pawl.Hooks{}.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: op, Err: err})
		}
		if err != nil || row.Purged < batch || !pace.Sleep(ctx, 4*time.Since(began)) {
			return
		}
		next = row.Next
	}
}

// writeReplays adds the counts to the database. If that fails, they are kept for the next time. A
// count is an estimate: it is added twice if the reply is lost, and lost if the process is killed.
func (k *housekeeper) writeReplays(ctx context.Context) {
	for scopes, counts := k.takeReplays(); len(scopes) > 0; scopes, counts = k.takeReplays() {
		limited, cancel := context.WithTimeout(ctx, houseLimit)
		err := contract.CommandReplayed(limited, k.pool, scopes, counts)
		cancel()
		if err == nil {
			continue
		}
		for i, scope := range scopes {
			k.count(scope, counts[i])
		}
		if ctx.Err() == nil {
			pawl.Hooks{}.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "command.replayed", Err: err})
		}
		return
	}
}

// takeReplays removes and returns the counts of as many scopes as one call of command_replayed
// takes.
func (k *housekeeper) takeReplays() (scopes []string, counts []int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for scope, n := range k.replays {
		if len(scopes) == mostScopes {
			break
		}
		scopes, counts = append(scopes, scope), append(counts, n)
		delete(k.replays, scope)
	}
	return scopes, counts
}
