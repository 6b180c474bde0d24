package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/migrate"
)

// startLimit is how long a part may take to start.
const startLimit = time.Minute

// drainPoll is how often a stop looks whether the last events are out.
const drainPoll = 20 * time.Millisecond

// Run checks the schema, starts the parts, and works until ctx ends or a part fails. Then it stops
// all parts in order, and returns nil, or what went wrong: the errors of the parts that failed, and
// the names of those that have not ended within ShutdownTimeout, which are left behind. Call it
// once.
//
// Errors before anything has started: [pawl.ErrArgumentInvalid] for a part's configuration, and for
// a pool that is too small, with the number to set; [pawl.ErrSchemaMismatch]; an address that
// cannot be listened on; those of the database. The sources of consumers that are a
// [pawl.Finisher], and listeners, are closed then as well.
func (a *App) Run(ctx context.Context) error {
	if a.begun.Swap(true) {
		return invalid("service.run", errors.New("Run was called before: make another App"))
	}
	err := a.run(ctx)
	if a.cfg.closes {
		a.closePool()
	}
	return err
}

func (a *App) run(ctx context.Context) error {
	defer a.abandon(ctx)
	if err := a.assemble(); err != nil {
		return err
	}
	health, err := a.open()
	if err != nil {
		return err
	}
	defer health()
	if err := a.check(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	defer unwatch()
	go a.watch(watching)
	go a.house.keep(pawl.WithHooks(watching, a.cfg.Hooks))

	failed := make(chan *part, len(a.parts))
	if err = a.start(ctx, failed); err == nil {
		a.started.Store(ctx.Err() == nil && len(failed) == 0)
		select {
		case <-ctx.Done():
		case <-failed:
		}
	}
	a.stopped.Store(true)
	if ctx.Err() != nil && a.cfg.StopDelay > 0 {
		select {
		case <-time.After(a.cfg.StopDelay):
		case <-failed:
		}
	}
	unwatch()
	err = errors.Join(err, a.stop())
	last, cancel := context.WithTimeout(pawl.WithHooks(context.WithoutCancel(ctx), a.cfg.Hooks), closeLimit)
	defer cancel()
	a.house.writeReplays(last)
	return err
}

// abandon gives up what the parts own that never ran, and what a consumer owns that could have been
// run again: nothing runs an App again.
func (a *App) abandon(ctx context.Context) {
	for _, p := range a.parts {
		if p.abandon == nil || p.stop != nil && !(p.hasEnded() && pawl.Retryable(p.err)) {
			continue
		}
		if err := p.abandon(ctx); err != nil {
			a.cfg.Hooks.Emit(context.WithoutCancel(ctx), pawl.Event{Kind: pawl.EventError, Op: "consumer.finish", Err: fmt.Errorf("%s: %w", p.name, err)})
		}
	}
}

// finishLimit is how long a source may take to end, as in package consumer.
const finishLimit = 10 * time.Second

// finish ends a source that owns something beyond its deliveries, in place of its consumer.
func finish(ctx context.Context, source pawl.Source) error {
	f, can := source.(pawl.Finisher)
	if !can {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishLimit)
	defer cancel()
	return callback.Do("Source.Finish", func() error { return f.Finish(ctx) })
}

// check refuses a database that does not fit, before anything is started.
func (a *App) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := migrate.Check(ctx, a.pool)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil // told to stop
	}
	return err
}

// start begins stage after stage, the last to stop first, and waits until each is at work. It returns early if a part fails or ctx ends.
func (a *App) start(ctx context.Context, failed chan *part) error {
	ctx = pawl.WithHooks(ctx, a.house.hooks(a.cfg.Hooks))
	late := time.NewTimer(startLimit)
	defer late.Stop()
	for _, stage := range slices.Backward(stopOrder) {
		for p := range a.of(stage) {
			p.begin(ctx, failed)
		}
		for p := range a.of(stage) {
			ready := p.ready()
			if ready == nil {
				continue
			}
			select {
			case <-ready:
			case <-p.ended: // its error, if it has one, is told by stop
				if p.err != nil {
					return nil
				}
			case <-ctx.Done():
				return nil
			case first := <-failed:
				failed <- first
				return nil
			case <-late.C:
				return &pawl.Error{Op: "service.start", Err: fmt.Errorf("%s has not started within %v", p.name, startLimit), Hint: "look at the events before this"}
			}
		}
	}
	return nil
}

// of yields the parts of a stage.
func (a *App) of(stages ...Stage) func(yield func(*part) bool) {
	return func(yield func(*part) bool) {
		for _, p := range a.parts {
			if slices.Contains(stages, p.stage) && !yield(p) {
				return
			}
		}
	}
}

// stop ends stage after stage. A stage begins when those before it have ended, or when they have had their head start; the relays when all
// others have ended, or late enough. It returns what the parts have returned, within ShutdownTimeout.
func (a *App) stop() error {
	began := time.Now()
	deadline := began.Add(a.cfg.ShutdownTimeout)
	for i, stage := range stopOrder[:len(stopOrder)-1] {
		a.end(stage)
		await(began.Add(a.cfg.ShutdownTimeout*time.Duration(i+1)/headStart), a.of(stopOrder[:i+1]...))
	}
	await(began.Add(a.cfg.lastStage()), a.of(stopOrder[:len(stopOrder)-1]...))
	a.publishLast()
	a.end(StagePublish)
	await(deadline, a.of(stopOrder...))
	return a.result()
}

// end tells the parts of a stage to stop.
func (a *App) end(stage Stage) {
	for p := range a.of(stage) {
		if p.stop != nil {
			p.stop()
		}
	}
}

// await waits until parts have ended, or until a point in time.
func await(until time.Time, parts func(func(*part) bool)) {
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	for p := range parts {
		if p.over() {
			continue
		}
		select {
		case <-p.ended:
		case <-late.C:
			return
		}
	}
}

// publishLast waits until the relays have published what was committed until now, for a moment at most: a sink that is down would keep the
// process from ending, and another relay publishes what is left.
func (a *App) publishLast() {
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.ShutdownTimeout/relayShare)
	defer cancel()
	var newest int64
	for p := range a.of(StagePublish) {
		if p.publishes == "" || p.over() {
			continue
		}
		var err error
		if newest == 0 {
			newest, err = catalog.NewestJob(ctx, a.pool)
		}
		if r, kicks := p.runner.(interface{ Kick() }); kicks {
			r.Kick()
		}
		for due := true; err == nil && due && !p.over(); {
			if due, err = catalog.JobsDue(ctx, a.pool, catalog.DueJobs{Queue: p.publishes, UpTo: newest}); due && !pace.Sleep(ctx, drainPoll) {
				return
			}
		}
	}
}

// result joins what went wrong, in the order of the parts.
func (a *App) result() (err error) {
	var behind []string
	for _, p := range a.parts {
		switch {
		case !p.over():
			behind = append(behind, p.name)
		case p.stop != nil:
			err = errors.Join(err, p.err)
		}
	}
	if behind == nil {
		return err
	}
	return errors.Join(err, &pawl.Error{Op: "service.stop", Err: fmt.Errorf("left behind after %v: %s", a.cfg.ShutdownTimeout, strings.Join(behind, ", ")),
		Hint: "end the process: what it held goes on elsewhere; raise ShutdownTimeout, or have handlers return when their context ends"})
}

// closeLimit is how long the end of the pool is waited for: handlers that were left behind keep it open.
const closeLimit = time.Second

func (a *App) closePool() {
	closed := make(chan struct{})
	go func() {
		a.pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeLimit):
	}
}
