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

// Config configures a [Keeper]. Its zero value keeps intervals.
type Config struct {
	// Schedules are those of this program. Run puts them before it keeps any: see [Put]. Those that other programs have put, and those that
	// are not in the list any more, are kept as well: delete one with `pawl schedules delete`. Default none.
	Schedules []Schedule
	// Cron reads cron expressions: cron.Parse of package schedule/cron. Without it schedules with one are left to other keepers.
	Cron func(expression, zone string) (Plan, error)
	// Poll is the longest pause between two looks at the schedules. A keeper wakes up for the ticks that it knows of. If a worker with a
	// presence connection runs in the same process, the keeper learns within milliseconds of a schedule that was put, resumed or changed and is due
	// within a second; otherwise Poll bounds how late it notices. Shorter asks the database more often. Default 1 s, at least 10 ms.
	Poll time.Duration
	// Hooks receive what happens.
	Hooks pawl.Hooks
}

// A Keeper enqueues the ticks of all schedules. Run one in each of your processes, or in some: more than one costs a look at the table
// now and then, and none doubles a tick.
type Keeper struct {
	pool   *pgxpool.Pool
	cfg    Config
	failed map[string]time.Time // schedules that cannot tick, and when to try again
	last   attempt              // that found nothing owed
	loop   *progress.Loop       // nil unless somebody looks
	begun  sync.Once
	ready  chan struct{} // closed when the schedules are put
}

// An attempt is to tick a schedule as it was read.
type attempt struct {
	name  string
	fence int64
}

// NewKeeper checks the configuration and fills in the defaults.
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
	pageSize  = 100              // schedules of one look
	callTime  = 10 * time.Second // of one call; a tick may have a thousand jobs
	failWait  = 5 * time.Second  // until a schedule that cannot tick is tried again
	lostWait  = time.Second      // until the database is tried again
	briefWait = time.Millisecond
)

// Run keeps the schedules until ctx ends, and returns nil. While the database is away it keeps trying. It returns an error only if it
// cannot start: the database is unreachable, its schema does not fit, or it refuses one of Config.Schedules. One Run at a time.
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

// Ready is closed when Run has put Config.Schedules, for the first time.
func (k *Keeper) Ready() <-chan struct{} { return k.ready }

// put stores the schedules of the configuration. While the database is away, or an open transaction holds one of them, it keeps trying.
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

// round enqueues what is due and returns how long nothing will be.
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
	return briefWait // each of them has another tick to wait for: look again
}

// overdue is for how long a tick must have been due before a keeper that does not move counts as stuck.
const overdue = time.Second

// due asks whether a schedule has a tick that the keeper could enqueue and has not.
func (k *Keeper) due(ctx context.Context, db pawl.DB) (bool, error) {
	rows, err := catalog.ScheduleNext(ctx, db, k.cfg.Cron != nil, nil, 1)
	return len(rows) > 0 && until(rows[0]) < -overdue, err
}

// ownFault tells what is wrong with one schedule, or locked, from a database that is away: then no schedule is to blame.
func ownFault(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, errPlan) || errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
}

// errPlan is in the error of a cron expression that cannot be read, or has no further tick.
var errPlan = errors.New("the plan cannot be followed")

// until is how long the tick of a schedule is still away, by the database's clock.
func until(r catalog.ScheduleRow) time.Duration {
	if r.NextAt == nil {
		return 0
	}
	return r.NextAt.Sub(r.ReadAt)
}

// failing names the schedules that are not tried now.
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

// tick enqueues what one schedule owes. A crash before the call leaves it owed, after it all is done; the one that lost its reply has
// an old fence when it asks again.
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
			return nil // stopping; whoever looks next sees whether it ticked
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

// beaten is called after a tick that found nothing owed: another keeper was faster. If the same is
// found twice, the keeper may see the schedule and not change it, as if row level security was turned
// on while it ran.
func (k *Keeper) beaten(ctx context.Context, r catalog.ScheduleRow) error {
	now := attempt{r.Name, r.Fence}
	twice := k.last == now
	k.last = now
	if !twice {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return migrate.Check(ctx, k.pool)
}

// ticks reads a cron expression; the database itself counts intervals.
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
		ticks = []time.Time{} // null is for intervals
	}
	return ticks, skipped, next, err
}

func (k *Keeper) emit(ctx context.Context, e pawl.Event) {
	k.cfg.Hooks.Emit(context.WithoutCancel(ctx), e)
}
