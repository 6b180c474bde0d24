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
	// askLimit bounds the question whether the app is ready, for which a probe waits, and lookLimit those about loops that stand still.
	askLimit  = 3 * time.Second
	lookLimit = 8 * time.Second
	// poolPatience is how long such a question waits for a connection of the pool before it makes one beside it.
	poolPatience = 500 * time.Millisecond
	// freshFor is how long an answer about the database serves further probes.
	freshFor = time.Second
	// recoverFor bounds how long a loop that stands still is watched while work is due, before it counts as stuck: after an outage
	// it needs a moment to notice that the database is back.
	recoverFor = 10 * time.Second
)

// health is what the app knows of itself. Probes read it; they wait for nothing but the database's word on readiness.
type health struct {
	mu       sync.Mutex
	suspects map[*progress.Loop]time.Time // since when work is known to be due for a loop that stands still
	stuck    []string                     // for people

	asking  sync.Mutex // one asks the database at a time
	asked   time.Time
	refusal error
}

// Live answers 200 while the process makes progress, else 503 with the loops that are stuck. A loop is stuck if it has not gone round for
// StallAfter and what its handlers' timeouts allow, the database can be reached on a connection of its own, and there is work for the loop.
// An idle process is live, and so is one whose database is away: a restart would not help.
func (a *App) Live() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a.health.mu.Lock()
		stuck := a.health.stuck
		a.health.mu.Unlock()
		if len(stuck) > 0 {
			tell(w, http.StatusServiceUnavailable, strings.Join(stuck, "\n"))
			return
		}
		tell(w, http.StatusOK, "ok")
	})
}

// Ready answers 200 while all parts are at work, their workers are registered in the database, the
// database answers and its schema fits; else 503 with the reason. What the database or its driver
// says names hosts and users, so it is not in the answer, which others may read: the error event
// with the Op service.ready has it. From the moment when the app is told to stop it answers 503.
func (a *App) Ready() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.ready(r.Context()); err != nil {
			tell(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		tell(w, http.StatusOK, "ok")
	})
}

func tell(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
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
	if ctx.Err() != nil { // the probe has gone, and the answer says nothing
		return errNoAnswer
	}
	if err != nil && a.health.refusal == nil {
		a.cfg.Hooks.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "service.ready", Err: err})
	}
	a.health.refusal, a.health.asked = public(err), time.Now()
	return a.health.refusal
}

// errNoAnswer is what a probe is told of a database that cannot be asked.
var errNoAnswer = errors.New("the database does not answer as it should: see the error event with the Op service.ready")

// public is what others may read of an error: our own words about the schema, and nothing that the
// database has said.
func public(err error) error {
	if err == nil || errors.Is(err, pawl.ErrSchemaMismatch) {
		return err
	}
	return errNoAnswer
}

// fits asks the database whether its schema fits: through the pool, or beside it if all of its connections are in use.
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

// beside runs questions on a connection of their own.
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

// watch looks for loops that stand still, until ctx ends.
func (a *App) watch(ctx context.Context) {
	a.health.suspects = map[*progress.Loop]time.Time{}
	for pace.Sleep(ctx, min(a.cfg.StallAfter/4, 5*time.Second)) {
		a.look(ctx)
	}
}

// still returns the loops that have not gone round for longer than anything explains.
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

// look compares the loops that stand still with what is due for them. It asks the database for nothing while all go round.
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

// due returns the loops for which there is work. Of a database that does not answer nothing is known, and nobody is blamed.
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
