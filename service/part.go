package service

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/progress"
)

// A Stage is when a part stops; parts start in the opposite order. Consumers have their own stage,
// directly after StageReceive. Sweepers have theirs, directly before StagePublish.
type Stage int

const (
	StageWork    Stage = iota // with workers and schedules
	StageReceive              // first, with HTTP servers: parts that hand work to consumers
	StagePublish              // last, with relays: parts that send the results of others

	stageConsume // of consumers
	stageSweep   // of sweepers, whose rows the stages before claim
)

// stopOrder is the order in which stages stop.
var stopOrder = []Stage{StageReceive, stageConsume, StageWork, stageSweep, StagePublish}

type runner interface {
	Run(ctx context.Context) error
}

type part struct {
	name      string
	stage     Stage
	least     int    // the connections that it needs
	grows     bool   // it can use more connections
	mayEnd    bool   // it may return nil before its context ends
	publishes string // a relay's queue
	build     func(share int) (runner, error)
	abandon   func(ctx context.Context) error // closes what it owns if Run did not; may be nil

	runner   runner
	progress *progress.Tracker
	stop     context.CancelFunc // nil if it was not started
	ended    chan struct{}      // closed when Run has returned
	err      error              // of Run; read it after ended is closed
}

// assemble divides the pool and makes the runners. It starts nothing.
func (a *App) assemble() error {
	if len(a.parts) == 0 {
		return invalid("service.run", errors.New("the app has no parts: add some with Consumer, Worker, Relay, Schedules, Sweeper, HTTP or Add"))
	}
	least, grows := make([]int, len(a.parts)), make([]bool, len(a.parts))
	for i, p := range a.parts {
		least[i], grows[i] = p.least, p.grows
	}
	pool := int(a.pool.Config().MaxConns)
	shares, fits := conns.Divide(pool, least, grows)
	if !fits {
		return a.tooSmall(pool)
	}
	var failed error
	for i, p := range a.parts {
		p.progress, p.ended = &progress.Tracker{}, make(chan struct{})
		var err error
		if p.runner, err = p.build(shares[i]); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	return failed
}

// tooSmall returns the error for a pool that is too small, with the number to set.
func (a *App) tooSmall(pool int) error {
	sum, parts := 0, make([]string, 0, len(a.parts))
	for _, p := range a.parts {
		sum += p.least
		if p.least > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", p.name, p.least))
		}
	}
	return &pawl.Error{Op: "service.run", Code: pawl.CodeArgumentInvalid,
		Err:  fmt.Errorf("the pool has %d connections, but the parts need %d at least: %s", pool, sum, strings.Join(parts, ", ")),
		Hint: fmt.Sprintf("set pool_max_conns=%d in the database URL, or more, or lower their Concurrency", sum)}
}

// begin starts a part. The part's context ends when the part is stopped, not when ctx ends.
func (p *part) begin(ctx context.Context, failed chan<- *part) {
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		err := errors.New("its goroutine exited")
		defer func() { p.finish(ctx, err, failed) }() // deferred, since Run may call runtime.Goexit
		err = p.runner.Run(progress.With(ctx, p.progress))
	}()
}

// finish records how a part ended. If it failed, finish sends it to failed.
func (p *part) finish(ctx context.Context, err error, failed chan<- *part) {
	switch {
	case err == nil && ctx.Err() == nil && !p.mayEnd:
		err = errors.New("it ended without being told to")
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		err = nil // the part was stopped
	}
	if err != nil {
		p.err = fmt.Errorf("%s: %w", p.name, err)
	}
	close(p.ended)
	if err != nil {
		failed <- p
	}
}

// ready returns a channel that is closed when the part is at work, or nil if it is so at once.
func (p *part) ready() <-chan struct{} {
	if r, tells := p.runner.(interface{ Ready() <-chan struct{} }); tells {
		return r.Ready()
	}
	return nil
}

// over reports whether the part has ended or was never started.
func (p *part) over() bool { return p.stop == nil || p.hasEnded() }

func (p *part) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}
