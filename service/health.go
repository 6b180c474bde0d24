package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/progress"
	"github.com/pawl-go/pawl/migrate"
)

const (
	// askLimit bounds a readiness check, for which a probe waits. lookLimit bounds a check of loops
	// without progress.
	askLimit  = 3 * time.Second
	lookLimit = 8 * time.Second
	// poolPatience is how long a check waits for a connection of the pool before it opens its own.
	poolPatience = 500 * time.Millisecond
	// freshFor is how long the result of a readiness check is reused.
	freshFor = time.Second
	// recoverFor is how long work must be due for a loop without progress before it counts as
	// stuck: after an outage it needs a moment to notice that the database is back.
	recoverFor = 10 * time.Second
)

// health is the state that probes read. Only a readiness probe waits, for the database.
type health struct {
	mu sync.Mutex
	// Since when work has been due for a loop without progress.
	suspects map[*progress.Loop]time.Time
	stuck    []string // names of the loops

	asking  sync.Mutex // held by the readiness check that asks the database
	asked   time.Time
	refusal error
}

// Live answers 200 while the process makes progress, else 503 with the names of stuck loops. A loop
// is stuck if three things hold: it made no progress for StallAfter beyond its handlers' timeouts,
// a new connection reaches the database, and work is due for the loop. A process is live while it
// is idle or its database is unreachable, since a restart would not help.
func (a *App) Live() http.Handler {
	return probe(func(context.Context) error {
		a.health.mu.Lock()
		defer a.health.mu.Unlock()
		if len(a.health.stuck) > 0 {
			return errors.New(strings.Join(a.health.stuck, "\n"))
		}
		return nil
	})
}

// Ready answers 200 while all parts are at work, their workers are registered in the database, and
// the database answers with a matching schema. Otherwise, and from the beginning of a shutdown on,
// it answers 503 with the reason. Errors of the database name hosts and users, so they are not in
// the response but in the event error with the Op service.ready.
func (a *App) Ready() http.Handler { return probe(a.ready) }

// probe answers 200, or 503 with the error.
func probe(ask func(context.Context) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, text := http.StatusOK, "ok"
		if err := ask(r.Context()); err != nil {
			status, text = http.StatusServiceUnavailable, err.Error()
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text+"\n")
	})
}

func (a *App) ready(ctx context.Context) error {
	switch {
	case a.stopped.Load():
		return errors.New("stopping")
	case !a.started.Load():
		return errors.New("starting")
	}
	for _, p := range a.parts {
		if !p.progress.Registered() {
			return fmt.Errorf("%s is not registered in the database", p.name)
		}
	}
	a.health.asking.Lock()
	defer a.health.asking.Unlock()
	if time.Since(a.health.asked) < freshFor {
		return a.health.refusal
	}
	err := a.fits(ctx)
	if ctx.Err() != nil { // the probe has left, so the error is not the database's
		return errNoReply
	}
	if err != nil && a.health.refusal == nil {
		a.cfg.Hooks.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "service.ready", Err: err})
	}
	a.health.refusal, a.health.asked = public(err), time.Now()
	return a.health.refusal
}

// errNoReply is the reason that a probe gets if the database does not answer.
var errNoReply = errors.New("the database does not answer as it should: see the error event with the Op service.ready")

// public returns the part of an error that a response may show: Pawl's message about the schema,
// and nothing of the database's message.
func public(err error) error {
	if err == nil || errors.Is(err, pawl.ErrSchemaMismatch) {
		return err
	}
	return errNoReply
}

// fits checks the schema, through the pool, or on a new connection if all of the pool are in use.
func (a *App) fits(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	soon, enough := context.WithTimeout(ctx, poolPatience)
	defer enough()
	if conn, err := a.pool.Acquire(soon); err == nil {
		defer conn.Release()
		return migrate.Check(ctx, conn)
	}
	return a.beside(ctx, func(db pawl.DB) error { return migrate.Check(ctx, db) })
}

// beside runs checks on a connection outside of the pool.
func (a *App) beside(ctx context.Context, ask func(pawl.DB) error) error {
	conn, err := conns.Direct(ctx, a.pool, a.cfg.Presence.URL)
	if err != nil {
		return pawl.Wrap("service.health", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	return ask(conn)
}

// watch looks for loops without progress until ctx ends.
func (a *App) watch(ctx context.Context) {
	a.health.suspects = map[*progress.Loop]time.Time{}
	for pace.Sleep(ctx, min(a.cfg.StallAfter/4, 5*time.Second)) {
		a.look(ctx)
	}
}

// still returns the loops without progress for longer than their limit and StallAfter.
func (a *App) still() (loops []*progress.Loop) {
	for _, p := range a.parts {
		if p.hasEnded() {
			continue
		}
		for _, l := range p.progress.Loops() {
			if l.Still() > l.Limit+a.cfg.StallAfter {
				loops = append(loops, l)
			}
		}
	}
	return loops
}

// look checks whether work is due for the loops without progress. It does not query the database
// while all loops make progress.
func (a *App) look(ctx context.Context) {
	still := a.still()
	due := a.due(ctx, still)
	var stuck []string
	for l := range a.health.suspects {
		if !slices.Contains(due, l) {
			delete(a.health.suspects, l)
		}
	}
	for _, l := range due {
		since, known := a.health.suspects[l]
		if !known {
			since = time.Now()
			a.health.suspects[l] = since
		}
		if time.Since(since) >= min(a.cfg.StallAfter, recoverFor) {
			stuck = append(stuck, fmt.Sprintf("%s has not moved for %v, and work is due", l.Name, l.Still().Round(time.Second)))
		}
	}
	a.health.mu.Lock()
	before := a.health.stuck
	a.health.stuck = stuck
	a.health.mu.Unlock()
	if len(before) == 0 && len(stuck) > 0 {
		a.cfg.Hooks.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "service.stuck", Err: errors.New(strings.Join(stuck, "; "))})
	}
}

// due returns the loops for which work is due. If the database does not answer, it returns none.
func (a *App) due(ctx context.Context, loops []*progress.Loop) (due []*progress.Loop) {
	if len(loops) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	err := a.beside(ctx, func(db pawl.DB) error {
		for _, l := range loops {
			has, err := true, error(nil)
			if l.Due != nil {
				has, err = l.Due(ctx, db)
			}
			if err != nil {
				return err
			}
			if has {
				due = append(due, l)
			}
		}
		return migrate.Check(ctx, db)
	})
	if err != nil {
		return nil
	}
	return due
}
