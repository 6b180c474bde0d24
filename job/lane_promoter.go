package job

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// promoteBacklog bounds the lanes that wait for promotion.
const promoteBacklog = 1000

// A lanePromoter promotes the next job (lane_promote) in lanes that were locked when a job in them
// ended. It takes one lane after the other, and waits at most 250 ms for each. The lane sweep
// promotes the rest.
type lanePromoter struct {
	pool *pgxpool.Pool
	kick func(queue string)

	mu      sync.Mutex
	skipped []skippedLane
	idle    chan struct{} // closed when no lane is left; nil until the first lane
	busy    bool
}

type skippedLane struct {
	id    int64
	queue string
}

func newLanePromoter(pool *pgxpool.Pool, kick func(queue string)) *lanePromoter {
	return &lanePromoter{pool: pool, kick: kick}
}

// after handles the lanes of ended jobs, after their COMMIT, without waiting. queue may be "": all.
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

// promote ignores errors: 55P03 means a lane that is still locked, others an outage.
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

// wait returns when no lane is left to promote. One promote takes at most statementLimit.
func (p *lanePromoter) wait() {
	p.mu.Lock()
	idle := p.idle
	p.mu.Unlock()
	if idle != nil {
		<-idle
	}
}
