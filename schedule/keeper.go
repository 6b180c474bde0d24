package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/kick"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/progress"
	"github.com/pawl-go/pawl/migrate"
)

// Config configures a [Keeper]. Its zero value ticks schedules with intervals.
type Config struct {
	// Schedules are those of this program. Run calls [Put] for each before it starts. The keeper
	// also ticks schedules of other programs, and those that were removed from this list. To delete
	// one run `pawl schedules delete`. Default none.
	Schedules []Schedule
	// Cron reads cron expressions: cron.Parse of the module schedule/cron. Without it, schedules
	// with an expression are left to other keepers.
	Cron func(expression, zone string) (Plan, error)
	// Poll is the longest pause between two reads of the schedules; a known tick ends it sooner. It
	// bounds how late the keeper notices a schedule that was put, resumed or changed. If a worker
	// with a presence connection runs in the same process, the keeper notices within milliseconds a
	// schedule that is due within a second. Shorter reads more often. Default 1 s, at least 10 ms.
	Poll time.Duration
	// Hooks receive events. Default: log to [log/slog.Default].
	Hooks pawl.Hooks
}

// A Keeper enqueues the ticks of all schedules. Run one in each process, or in some of them.
// Several keepers never enqueue a tick twice.
type Keeper struct {
	pool   *pgxpool.Pool
	cfg    Config
	failed map[string]time.Time // when to try schedules again whose tick failed
	last   tickFence            // the last one that another keeper won
	loop   *progress.Loop       // nil if no liveness check is registered
	begun  sync.Once
	ready  chan struct{} // closed when the schedules are put
}

// A tickFence identifies a schedule's tick: the fence grows with each.
type tickFence struct {
	name  string
	fence int64
}

// NewKeeper checks the configuration and fills in the defaults. It makes no query.
//
// Errors: [pawl.ErrArgumentInvalid], with the field or the schedule.
func NewKeeper(pool *pgxpool.Pool, cfg Config) (*Keeper, error) {
	if pool == nil {
		return nil, &pawl.Error{Op: "schedule.keeper", Code: pawl.CodeArgumentInvalid, Err: errors.New("the pool is missing")}
	}
	if cfg.Poll == 0 {
		cfg.Poll = time.Second
	}
	if cfg.Poll < 10*time.Millisecond {
		return nil, &pawl.Error{Op: "schedule.keeper", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("the Poll must be at least 10ms, it is %v", cfg.Poll)}
	}
	for _, s := range cfg.Schedules {
		if _, err := s.args(); err != nil {
			return nil, &pawl.Error{Op: "schedule.keeper", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("the schedule %q: %w", s.Name, err)}
		}
	}
	return &Keeper{pool: pool, cfg: cfg, failed: map[string]time.Time{}, ready: make(chan struct{})}, nil
}

const (
	pageSize  = 100              // schedules in one read
	callTime  = 10 * time.Second // timeout of one call; MissedAll may enqueue 1,000 jobs
	failWait  = 5 * time.Second  // before a schedule whose tick failed is tried again
	lostWait  = time.Second      // before the database is tried again
	briefWait = time.Millisecond
)

// Run enqueues ticks until ctx ends, then returns nil. While the database is unreachable it keeps
// trying. It returns an error only if it cannot start: the database is unreachable, its schema does
// not match, or it refuses one of Config.Schedules. Only one Run may be active at a time.
func (k *Keeper) Run(ctx context.Context) error {
	if err := migrate.Check(ctx, k.pool); err != nil && ctx.Err() == nil {
		return err
	}
	if err := k.put(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	k.begun.Do(func() { close(k.ready) })
	k.loop = progress.From(ctx).Loop("schedules", k.cfg.Poll+2*callTime, k.due)
	kicked, leave := kick.Keeper()
	defer leave()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-kicked:
		case <-time.After(k.round(ctx)):
		}
	}
	return nil
}

// Ready returns a channel that is closed when Run has put Config.Schedules for the first time.
func (k *Keeper) Ready() <-chan struct{} { return k.ready }

// put stores Config.Schedules. It retries while the database is unreachable or an open transaction
// holds one of them.
func (k *Keeper) put(ctx context.Context) error {
	for _, s := range k.cfg.Schedules {
		for {
			limited, cancel := context.WithTimeout(ctx, callTime)
			err := callback.Do("Plan", func() error {
				_, err := Put(limited, k.pool, s)
				return err
			})
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() != nil || !pawl.Retryable(err) {
				return err
			}
			k.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "schedule.put", Scope: s.Queue, Key: s.Name, Err: err})
			pace.Sleep(ctx, lostWait)
		}
	}
	return nil
}

// round enqueues the ticks that are due and returns how long to wait for the next.
func (k *Keeper) round(ctx context.Context) time.Duration {
	limited, cancel := context.WithTimeout(ctx, callTime)
	rows, err := catalog.ScheduleNext(limited, k.pool, k.cfg.Cron != nil, k.failing(), pageSize)
	cancel()
	if err != nil {
		if ctx.Err() == nil {
			k.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "schedule.next", Err: err})
		}
		return lostWait
	}
	k.loop.Tick()
	for _, r := range rows {
		if wait := until(r); wait > 0 {
			return min(wait, k.cfg.Poll)
		}
		if err := k.tick(ctx, r); err != nil {
			k.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "schedule.tick", Scope: r.Queue, Key: r.Name, Err: err})
			if !ownFault(err) {
				return lostWait
			}
			k.failed[r.Name] = time.Now().Add(failWait)
		}
		k.loop.Tick()
	}
	if len(rows) == 0 {
		return k.cfg.Poll
	}
	return briefWait // all of this page have ticked: read again
}

// overdue is how long a tick must have been due before the liveness check calls the keeper stuck.
const overdue = time.Second

// due reports whether a tick is overdue that this keeper could enqueue.
func (k *Keeper) due(ctx context.Context, db pawl.DB) (bool, error) {
	rows, err := catalog.ScheduleNext(ctx, db, k.cfg.Cron != nil, nil, 1)
	return len(rows) > 0 && until(rows[0]) < -overdue, err
}

// ownFault reports whether one schedule is at fault, or locked, rather than the whole database.
func ownFault(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, errPlan) || errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
}

// errPlan marks errors of a cron expression that cannot be parsed or has no further tick.
var errPlan = errors.New("the plan cannot be followed")

// until returns the time to a schedule's next tick, by the database's clock.
func until(r catalog.ScheduleRow) time.Duration {
	if r.NextAt == nil {
		return 0
	}
	return r.NextAt.Sub(r.ReadAt)
}

// failing returns the schedules that wait for failWait after a failed tick.
func (k *Keeper) failing() (names []string) {
	for name, again := range k.failed {
		if time.Now().After(again) {
			delete(k.failed, name)
			continue
		}
		names = append(names, name)
	}
	return names
}

// tick enqueues the due ticks of one schedule. After a crash before COMMIT they are still due. If
// the reply was lost after COMMIT, the next try has an old fence and enqueues nothing.
func (k *Keeper) tick(ctx context.Context, r catalog.ScheduleRow) error {
	ticks, skipped, next, err := k.ticks(r)
	if err != nil {
		return err
	}
	if err := fault.At("schedule.tick.before"); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	row, err := contract.ScheduleTick(limited, k.pool, r.Name, r.Fence, ticks, next)
	if err != nil {
		if ctx.Err() != nil {
			return nil // shutting down: the next round, of any keeper, reads whether it ticked
		}
		return err
	}
	if err := fault.At("schedule.tick.after"); err != nil {
		return err
	}
	if row.Outcome != "ticked" {
		return k.beaten(ctx, r)
	}
	if row.Enqueued > 0 {
		k.emit(ctx, pawl.Event{Kind: pawl.EventTicked, Op: "schedule.tick", Scope: r.Queue, Key: r.Name, Count: row.Enqueued})
	}
	if skipped += row.Skipped; skipped > 0 {
		k.emit(ctx, pawl.Event{Kind: pawl.EventTicksSkipped, Op: "schedule.tick", Scope: r.Queue, Key: r.Name, Count: skipped})
	}
	return nil
}

// beaten handles a tick that another keeper enqueued first. If the same fence loses twice, nothing
// moves the schedule: perhaps row level security lets this login read but not change it. Then
// beaten returns the error of the schema check.
func (k *Keeper) beaten(ctx context.Context, r catalog.ScheduleRow) error {
	now := tickFence{r.Name, r.Fence}
	twice := k.last == now
	k.last = now
	if !twice {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return migrate.Check(ctx, k.pool)
}

// ticks returns the due ticks of a cron expression, how many were skipped, and the next one. For an
// interval it returns nothing, since the database computes those.
func (k *Keeper) ticks(r catalog.ScheduleRow) (ticks []time.Time, skipped int, next time.Time, err error) {
	if r.Cron == nil {
		return nil, 0, time.Time{}, nil
	}
	err = callback.Do("Config.Cron", func() error {
		plan, err := k.cfg.Cron(*r.Cron, *r.TimeZone)
		if err != nil {
			return err
		}
		first, limit := plan.Next(r.SinceAt), 1
		if r.NextAt != nil {
			first = *r.NextAt
		}
		if Missed(r.Missed) == MissedAll {
			limit = missedLimit
		}
		if ticks, skipped, next = plan.owed(first, r.ReadAt, limit); next.IsZero() {
			return fmt.Errorf("%s has no further tick", plan)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%w: %w", errPlan, err)
	}
	if ticks == nil {
		ticks = []time.Time{} // SQL null would mean an interval
	}
	return ticks, skipped, next, err
}

func (k *Keeper) emit(ctx context.Context, e pawl.Event) {
	k.cfg.Hooks.Emit(context.WithoutCancel(ctx), e)
}
