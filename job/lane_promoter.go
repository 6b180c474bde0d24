package job

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// promoteBacklog bounds the lanes that wait for the lanePromoter.
const promoteBacklog = 1000

// A lanePromoter gives the turn to the next job (lane_promote) in lanes that the end of a job had
// to skip because they were locked. It takes one after the other, and waits 250 ms at most for
// each. What it cannot get, and what comes in too fast, is left to the lane sweep.
type lanePromoter struct {
	pool *pgxpool.Pool
	kick func(queue string)

	mu      sync.Mutex
	skipped []skippedLane
	idle    chan struct{} // closed when it has nothing to do; nil before it first had
	busy    bool
}

type skippedLane struct {
	id    int64
	queue string
}

func newLanePromoter(pool *pgxpool.Pool, kick func(queue string)) *lanePromoter {
	return &lanePromoter{pool: pool, kick: kick}
}

// after takes what the end of jobs did for those behind them, when its transaction has committed.
// The queue may be empty, which means any. It does not wait.
func (p *lanePromoter) after(queue string, lanes contract.Lanes) {
	if lanes.Promoted > 0 {
		p.kick(queue)
	}
	if len(lanes.Skipped) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range lanes.Skipped {
		one := skippedLane{id, queue}
		if len(p.skipped) < promoteBacklog && !slices.Contains(p.skipped, one) {
			p.skipped = append(p.skipped, one)
		}
	}
	if !p.busy {
		p.busy, p.idle = true, make(chan struct{})
		go p.promoteAll()
	}
}

func (p *lanePromoter) promoteAll() {
	for {
		p.mu.Lock()
		now := p.skipped
		p.skipped, p.busy = nil, len(now) > 0
		if !p.busy {
			close(p.idle)
		}
		p.mu.Unlock()
		if len(now) == 0 {
			return
		}
		p.promote(now)
	}
}

// promote may fail: 55P03 means that the lane is still locked, and anything else that the database is away.
func (p *lanePromoter) promote(lanes []skippedLane) {
	ctx, cancel := context.WithTimeout(context.Background(), statementLimit)
	defer cancel()
	for _, l := range lanes {
		promoted, err := contract.LanePromote(ctx, p.pool, l.id)
		if promoted {
			p.kick(l.queue)
		}
		if pawl.Unreachable(err) || ctx.Err() != nil {
			return
		}
	}
}

// wait returns when nothing is left to promote: one try of all that was skipped takes no longer
// than statementLimit.
func (p *lanePromoter) wait() {
	p.mu.Lock()
	idle := p.idle
	p.mu.Unlock()
	if idle != nil {
		<-idle
	}
}
