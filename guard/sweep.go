package guard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/progress"
	"github.com/pawl-go/pawl/internal/ranges"
	"github.com/pawl-go/pawl/internal/rollup"
	"github.com/pawl-go/pawl/internal/txn"
)

// SweeperConfig selects the rows that a [Sweeper] retries. Its zero value is fit for production.
type SweeperConfig struct {
	// Every is the interval between passes. Default 10 s. If it is negative, Run makes no passes
	// and only accepts claims: call Pass yourself.
	Every time.Duration
	// StuckAfter is how long a row may be claimed before it becomes pending again. Set it above the
	// longest work: after a takeover, the old holder's commit is refused. Default 15 min.
	StuckAfter time.Duration
	// PendingAfter is how long a row may be pending before the sweeper retries it without a
	// message: the message may be lost. It counts from CreatedAt and from the last attempt. Default
	// 15 min.
	//
	// Without CreatedAt, it counts from the time when a pass of this sweeper first saw a row as
	// high in the column Monotone, and starts again with each process. Without both, a row that was
	// never claimed is never retried: it looks like a new row.
	PendingAfter time.Duration
	// MaxAttempts bounds a row's attempts. Then a pass marks its error as final. Default 25.
	MaxAttempts int
	// Wait is the delay after the first error. It doubles with each attempt up to MaxWait. Without
	// the column ClaimedAt there is no delay. Default 30 s.
	Wait time.Duration
	// MaxWait bounds the delay. Default 1 h.
	MaxWait time.Duration
	// Limit is the most rows that a pass takes of each kind: failed, stuck, pending. Default 100.
	Limit int
	// Hooks receive the table's events: failures, used-up rows, late commits of [Rows.Claim].
	// Default: log to [log/slog.Default].
	Hooks pawl.Hooks
}

// A Sweeper retries rows that failed, whose holder died, or whose message was lost. Several may run
// at once, such as one in every process.
type Sweeper struct {
	rows  *Rows
	cfg   SweeperConfig
	drive func(ctx context.Context, id string) error

	mu       sync.Mutex
	seen     []highMark // values of the column Monotone, oldest first
	counted  *rollup.Recorder
	measured time.Time // when final rows were last counted

	begun sync.Once
	ready chan struct{} // closed when Run accepts claims
}

// A highMark is the highest value of the column Monotone that a pass saw.
type highMark struct {
	at    time.Time
	value string
}

// sweepers are the sweepers of one table in this process.
type sweepers struct {
	running atomic.Int32
	newest  atomic.Pointer[Sweeper] // the last one started; late claims call its hooks
}

// Sweeper returns a sweeper of these rows. It calls drive with the id, as text, of each row that it
// made pending. drive does the work, with [Rows.Once] or [Rows.Claim], or sends the message again.
// If it fails, the row is retried after PendingAfter.
//
// Errors: [pawl.ErrArgumentInvalid] without drive, if the table has no AttemptCount or LastError,
// or with the field that is negative.
func (r *Rows) Sweeper(cfg SweeperConfig, drive func(ctx context.Context, id string) error) (*Sweeper, error) {
	if err := ranges.NotNegative(cfg, "Every"); err != nil {
		return nil, &pawl.Error{Op: "guard.sweep", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	if cfg.Every == 0 {
		cfg.Every = 10 * time.Second
	}
	for option, fallback := range map[*time.Duration]time.Duration{&cfg.StuckAfter: 15 * time.Minute,
		&cfg.PendingAfter: 15 * time.Minute, &cfg.Wait: 30 * time.Second, &cfg.MaxWait: time.Hour} {
		if *option == 0 {
			*option = fallback
		}
	}
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = 25
	}
	if cfg.Limit == 0 {
		cfg.Limit = 100
	}
	if drive == nil || r.table.AttemptCount == None || r.table.LastError == None {
		return nil, &pawl.Error{Op: "guard.sweep", Code: pawl.CodeArgumentInvalid,
			Err: errors.New("a sweeper needs a function to drive rows with, and the columns AttemptCount and LastError")}
	}
	return &Sweeper{rows: r, cfg: cfg, drive: drive, counted: rollup.New(r.pool, rollup.Consumer), ready: make(chan struct{})}, nil
}

// Run makes a pass at once and then every Every, until ctx is cancelled. It always returns nil:
// errors are events, and the next pass retries. Claims are accepted while Run runs.
func (s *Sweeper) Run(ctx context.Context) error {
	s.rows.swept.newest.Store(s)
	s.rows.swept.running.Add(1)
	defer s.rows.swept.running.Add(-1)
	s.begun.Do(func() { close(s.ready) })
	if s.cfg.Every < 0 {
		<-ctx.Done()
		return nil
	}
	loop := progress.From(ctx).Loop("sweeper "+s.rows.table.Name, s.cfg.Every+s.cfg.StuckAfter, nil)
	defer func() { s.addCounts(context.WithoutCancel(ctx)) }()
	for {
		if _, err := s.pass(ctx, loop); err != nil && ctx.Err() == nil {
			s.tell(ctx, pawl.Event{Kind: pawl.EventError, Op: "guard.sweep", Err: err})
		}
		s.addCounts(context.WithoutCancel(ctx)) // WithoutCancel, or the last counts would be lost
		if !pace.Sleep(ctx, s.cfg.Every) {
			return nil
		}
	}
}

// Ready returns a channel that is closed when Run accepts claims.
func (s *Sweeper) Ready() <-chan struct{} { return s.ready }

// Pass makes one pass and returns how many rows it drove: 0 if another sweeper collects them. Use
// it in tests, or to sweep at times of your own. The error is the database's.
func (s *Sweeper) Pass(ctx context.Context) (driven int, err error) { return s.pass(ctx, nil) }

func (s *Sweeper) pass(ctx context.Context, loop *progress.Loop) (driven int, err error) {
	loop.Tick()
	var found passResult
	err = txn.Restart(ctx, func() (err error) {
		found, err = s.collect(ctx)
		return err
	})
	conns.LeaveStandby(s.rows.pool, err)
	if err != nil {
		return 0, err
	}
	s.tellFound(ctx, found)
	for _, id := range found.due {
		failure := txn.Safely(func() error { return s.drive(ctx, id) }) // recovers a panic
		loop.Tick()
		switch {
		case failure == nil, errors.Is(failure, pawl.ErrAlreadyHandled), errors.Is(failure, pawl.ErrInProgress):
			driven++
		case errors.Is(failure, pawl.ErrFailureRecorded):
			driven++
			s.tell(ctx, pawl.Event{Kind: failedKind(failure), Op: "guard.sweep", Key: id, Err: failure})
		// Claimed.lost has already reported it.
		case errors.As(failure, new(refusedError)):
		case ctx.Err() == nil:
			s.tell(ctx, pawl.Event{Kind: pawl.EventError, Op: "guard.sweep", Key: id, Err: failure})
		}
	}
	return driven, nil
}

// passResult is the result of one pass whose transaction has committed.
type passResult struct {
	due     []string // ids of rows made pending
	taken   int      // number of stuck rows
	usedUp  []usedUp
	counted bool
	final   int64 // number of final rows, if counted
}

// collect makes due rows pending and marks used-up rows. A crash after it costs PendingAfter.
func (s *Sweeper) collect(ctx context.Context) (found passResult, err error) {
	tx, err := txn.Begin(ctx, s.rows.pool, "guard.sweep", workTimeout)
	if err != nil {
		return found, err
	}
	defer txn.Rollback(ctx, tx)
	if locked, err := contract.TryLock(ctx, tx, "guard sweep", fmt.Sprintf("%.200s", s.rows.table.Name)); err != nil || !locked {
		return found, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.collectIn(ctx, tx, &found); err != nil {
		return passResult{}, pawl.Wrap("guard.sweep", err)
	}
	if err := txn.Commit(ctx, "guard.sweep", tx); err != nil {
		return passResult{}, err
	}
	if found.counted {
		s.measured = time.Now()
	}
	return found, nil
}

func (s *Sweeper) collectIn(ctx context.Context, tx pgx.Tx, found *passResult) error {
	if err := s.look(ctx, tx); err != nil {
		return err
	}
	for _, spent := range s.spent() {
		rows, err := s.useUp(ctx, tx, spent)
		if err != nil {
			return err
		}
		found.usedUp = append(found.usedUp, rows...)
		if spent.state == s.rows.table.Processing {
			found.taken += len(rows)
		}
	}
	for _, due := range s.due() {
		some, err := s.take(ctx, tx, due)
		if err != nil {
			return err
		}
		found.due = append(found.due, some...)
		if due.state == s.rows.table.Processing {
			found.taken += len(some)
		}
	}
	return s.countFinal(ctx, tx, found)
}

// highest selects the highest value of the column Monotone. The order by names the table: the
// output column is text, where 9 is above 10.
const highest = `select t.{Monotone}::text
  from {Name} as t
 order by t.{Monotone} desc nulls last
 limit 1`

// look records the highest value of the column Monotone.
func (s *Sweeper) look(ctx context.Context, tx pgx.Tx) error {
	t := s.rows.table
	if t.CreatedAt != None || t.Monotone == None {
		return nil
	}
	var value string
	err := tx.QueryRow(ctx, t.fill(highest)).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil && (len(s.seen) == 0 || s.seen[len(s.seen)-1].value != value) {
		s.seen = append(s.seen, highMark{time.Now(), value})
	}
	for len(s.seen) > 1 && time.Since(s.seen[1].at) > s.cfg.PendingAfter {
		s.seen = s.seen[1:]
	}
	return err
}

// Conditions under which a row is due, by its state and the table's columns.
const (
	stuck    = `{ClaimedAt} < {now} - {StuckAfter}`
	notFinal = `coalesce({LastError}, '') not like '{final}%'`
	attempts = `{AttemptCount} < {MaxAttempts}`
	spent    = `{AttemptCount} >= {MaxAttempts}`
	failed   = attempts + ` and ` + notFinal
	rested   = `({ClaimedAt} is null or {ClaimedAt} < {now} - least({MaxWait}, {Wait} * 2 ^ least({AttemptCount} - 1, 30)) * interval '1 microsecond')`
	created  = `{CreatedAt} < {now} - {PendingAfter}`
	claimed  = `{ClaimedAt} < {now} - {PendingAfter}`
	// greatest skips nulls.
	either    = `greatest({ClaimedAt}, {CreatedAt}) < {now} - {PendingAfter}`
	unclaimed = `{Monotone} <= {seen}`
	both      = `case when {ClaimedAt} is null then {unclaimed} else ` + claimed + ` end`
)

// A condition selects rows in a state that also meet an expression.
type condition struct{ state, also string }

// due returns the conditions for rows to make pending.
func (s *Sweeper) due() []condition {
	t := s.rows.table
	pending := condition{t.Pending, s.pending()}
	switch {
	case t.ClaimedAt != None:
		return []condition{{t.Processing, s.fill(attempts + " and " + stuck)}, {t.Error, s.fill(failed + " and " + rested)}, pending}
	case pending.also != "":
		return []condition{{t.Error, s.fill(failed)}, pending}
	}
	return []condition{{t.Error, s.fill(failed)}}
}

// pending returns the expression for pending rows that are due; "" if no column can tell.
func (s *Sweeper) pending() string {
	switch t := s.rows.table; {
	case t.ClaimedAt != None && t.CreatedAt != None:
		return s.fill(either)
	case t.ClaimedAt != None && t.Monotone != None:
		return s.fill(both, "{unclaimed}", s.unclaimed())
	case t.ClaimedAt != None:
		return s.fill(claimed)
	case t.CreatedAt != None:
		return s.fill(created)
	case t.Monotone != None:
		return s.unclaimed()
	}
	return ""
}

// unclaimed returns the expression for rows that were never claimed and are old by Monotone.
func (s *Sweeper) unclaimed() string {
	if len(s.seen) == 0 || time.Since(s.seen[0].at) <= s.cfg.PendingAfter {
		return "false"
	}
	return s.fill(unclaimed, "{seen}", literal(s.seen[0].value))
}

// fill fills a template with this sweeper's times and bounds.
func (s *Sweeper) fill(template string, more ...string) string {
	micros := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	interval := func(d time.Duration) string { return "interval '" + micros(d) + " microseconds'" }
	return s.rows.table.fill(template, append([]string{"{StuckAfter}", interval(s.cfg.StuckAfter), "{PendingAfter}", interval(s.cfg.PendingAfter),
		"{Wait}", micros(s.cfg.Wait), "{MaxWait}", micros(s.cfg.MaxWait), "{MaxAttempts}", strconv.Itoa(s.cfg.MaxAttempts), "{Limit}", strconv.Itoa(s.cfg.Limit),
		"{final}", finalMark}, more...)...)
}

// giveBack makes due rows pending. It tests the condition again on each row that it locked.
const giveBack = `update {Name}
   set {Status} = {Pending}
     , {ClaimedAt} = {now}
 where {ID} = any (array(
         select {ID}
           from {Name}
          where {Status} = {state} and {also}
          limit {Limit}
            for update skip locked))
   and {Status} = {state} and {also}
returning {ID}::text`

// take makes rows pending. It sets ClaimedAt, so that the next pass leaves them alone.
func (s *Sweeper) take(ctx context.Context, tx pgx.Tx, due condition) ([]string, error) {
	rows, err := tx.Query(ctx, s.fill(giveBack, "{state}", literal(due.state), "{also}", due.also))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
