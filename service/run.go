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

// startLimit bounds the start of all parts.
const startLimit = time.Minute

// drainPoll is how often a shutdown checks whether the last events are published.
const drainPoll = 20 * time.Millisecond

// Run checks the schema, starts the parts, and works until ctx ends or a part fails. Then it stops
// all parts in order. It returns nil, or the errors of failed parts and the names of parts that did
// not end within ShutdownTimeout, which it abandons. Call it once.
//
// Errors before a part has started: [pawl.ErrArgumentInvalid] for a part's configuration, or for a
// pool that is too small, with the number to set; [pawl.ErrSchemaMismatch]; an address that cannot
// be opened; those of the database. Run then also closes listeners, and sources that are a
// [pawl.Finisher].
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

// abandon closes what is owned by parts that never ran, and by consumers that ended with a
// retryable error: an App runs once.
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

// finishLimit is how long a source may take to finish, as in package consumer.
const finishLimit = 10 * time.Second

// finish closes a source that is a [pawl.Finisher], in place of its consumer.
func finish(ctx context.Context, source pawl.Source) error {
	f, can := source.(pawl.Finisher)
	if !can {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishLimit)
	defer cancel()
	return callback.Do("Source.Finish", func() error { return f.Finish(ctx) })
}

// check returns an error if the database's schema does not match.
func (a *App) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := migrate.Check(ctx, a.pool)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil // shutting down
	}
	return err
}

// start starts stage after stage, in the reverse of stopOrder, and waits until each is at work. It
// returns early if a part fails or ctx ends.
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
			case <-p.ended: // stop returns its error
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

// of yields the parts of some stages.
func (a *App) of(stages ...Stage) func(yield func(*part) bool) {
	return func(yield func(*part) bool) {
		for _, p := range a.parts {
			if slices.Contains(stages, p.stage) && !yield(p) {
				return
			}
		}
	}
}

// stop stops stage after stage. It waits for each until its parts have ended, but at most for the
// head start, and before the sweepers at most until lastStage. It returns the parts' errors, within
// ShutdownTimeout.
func (a *App) stop() error {
	began := time.Now()
	deadline := began.Add(a.cfg.ShutdownTimeout)
	handling := stopOrder[:len(stopOrder)-2] // all before sweepers and relays
	for i, stage := range handling {
		a.end(stage)
		await(began.Add(a.cfg.ShutdownTimeout*time.Duration(i+1)/headStart), a.of(handling[:i+1]...))
	}
	await(began.Add(a.cfg.lastStage()), a.of(handling...))
	a.end(stageSweep)
	await(time.Now().Add(a.cfg.ShutdownTimeout/headStart), a.of(stageSweep))
	a.publishLast()
	a.end(StagePublish)
	await(deadline, a.of(stopOrder...))
	return a.result()
}

func (a *App) end(stage Stage) {
	for p := range a.of(stage) {
		if p.stop != nil {
			p.stop()
		}
	}
}

// await waits until parts have ended, or until a deadline.
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

// publishLast waits until the relays have published all events committed so far. The wait is
// bounded, since the sink may be down; another relay publishes the rest.
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

// closeLimit bounds the wait for the pool to close, which abandoned handlers may hold open.
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
