package command

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// Purge forgets finished commands whose retention is over, at most limit of them (1 to 100,000), and returns how many. What is
// processing, unknown or waiting for a retry never leaves by age. olderThan spares the look at commands made since then: give
// the shortest Retention in use; 0 means 24 h, the default Retention. Run it now and then, until it returns less than limit.
func Purge(ctx context.Context, db pawl.DB, limit int, olderThan time.Duration) (purged int, err error) {
	if olderThan == 0 {
		olderThan = -1
	}
	row, err := contract.CommandPurge(ctx, db, contract.PurgeArgs{Limit: limit, OlderThan: olderThan})
	return row.Purged, err
}

// A ReplayCounter counts answers given again, by scope, for the view pawl_v1.suppression_by_scope. A replay itself writes
// nothing, so the counts are told now and then. The zero value is ready.
type ReplayCounter struct {
	mu     sync.Mutex
	counts map[string]int64
}

// Hooks returns the hooks that feed the counter; see [pawl.Join].
func (c *ReplayCounter) Hooks() pawl.Hooks {
	return pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Kind != pawl.EventReplay {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.counts == nil {
			c.counts = map[string]int64{}
		}
		c.counts[e.Scope]++
	}}
}

// Flush tells the database what was counted since the last time. Call it every minute or so, and on shutdown; what it could
// not tell is kept. A count is an estimate: it may be told twice when a reply is lost, and is lost with the process.
func (c *ReplayCounter) Flush(ctx context.Context, db pawl.DB) error {
	c.mu.Lock()
	told := c.counts
	c.counts = nil
	c.mu.Unlock()
	if len(told) == 0 {
		return nil
	}
	var scopes []string
	var counts []int64
	for scope, n := range told {
		scopes, counts = append(scopes, scope), append(counts, n)
	}
	err := contract.CommandReplayed(ctx, db, scopes, counts)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.counts == nil {
			c.counts = map[string]int64{}
		}
		for scope, n := range told {
			c.counts[scope] += n
		}
	}
	return err
}
