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
	"github.com/pawl-go/pawl/internal/rollup"
	"github.com/pawl-go/pawl/internal/txn"
)

// A SweeperConfig says which rows a [Sweeper] drives again, and when. Its zero value is fit for
// production.
type SweeperConfig struct {
	// Every is the pause between two passes. Default 10 s.
	Every time.Duration
	// StuckAfter is how long a row may be claimed before it is pending again. Longer than the longest work: a holder that still
	// runs is refused when it commits. Default 15 min.
	StuckAfter time.Duration
	// PendingAfter is how long a row may be pending before it is driven without a message: the message may never have been sent,
	// or was deleted when its holder died. Counted from CreatedAt, and from the last attempt. Default 15 min. A table without CreatedAt: from when
	// a pass of this sweeper first saw a row as high as this one in the column Monotone, so it begins anew with the process. Without either, a
	// row that was never claimed is never driven: it cannot be told from a fresh one.
	PendingAfter time.Duration
	// MaxAttempts is how often a row is tried in all. After that a pass marks its error as final,
	// and it is not driven any more. Default 25.
	MaxAttempts int
	// Wait is the pause after the first error; it doubles with every attempt up to MaxWait. Without the column ClaimedAt there is
	// none. Default 30 s.
	Wait time.Duration
	// MaxWait bounds the pauses. Default 1 h.
	MaxWait time.Duration
	// Limit is how many rows one pass takes of each sort. Default 100.
	Limit int
	// Hooks receive the events of this table: what fails, rows that are not tried any more, and
	// late attempts of [Rows.Claim].
	Hooks pawl.Hooks
}

// A Sweeper drives rows again whose message is gone: those that failed, those whose holder died, and those that nobody came for.
// Several at once are safe; every process may run one.
type Sweeper struct {
	rows  *Rows
	cfg   SweeperConfig
	drive func(ctx context.Context, id string) error

	mu       sync.Mutex
	seen     []highMark // how far the column Monotone had come, oldest first
	counted  *rollup.Recorder
	measured time.Time // when final rows were counted
}

// A highMark is the highest value of the column Monotone that a pass saw.
type highMark struct {
	at    time.Time
	value string
}

// sweepers are those of one table in this process.
type sweepers struct {
	running atomic.Int32
	newest  atomic.Pointer[Sweeper] // the last that began to run; claims tell its hooks
}

// Sweeper makes the sweeper of these rows. drive is called for each row that is pending again, with its id as text: do the work,
// with [Rows.Once] or [Rows.Claim], or send the message anew. If it fails the row is driven again after PendingAfter.
func (r *Rows) Sweeper(cfg SweeperConfig, drive func(ctx context.Context, id string) error) (*Sweeper, error) {
	for option, fallback := range map[*time.Duration]time.Duration{&cfg.Every: 10 * time.Second, &cfg.StuckAfter: 15 * time.Minute,
		&cfg.PendingAfter: 15 * time.Minute, &cfg.Wait: 30 * time.Second, &cfg.MaxWait: time.Hour} {
		if *option <= 0 {
			*option = fallback
		}
	}
	if cfg.MaxAttempts <= 0 {
		cfg.MaxAttempts = 25
	}
	if cfg.Limit <= 0 {
		cfg.Limit = 100
	}
	if drive == nil || r.table.AttemptCount == None || r.table.LastError == None {
		return nil, &pawl.Error{Op: "guard.sweep", Code: pawl.CodeArgumentInvalid,
			Err: errors.New("a sweeper needs a function to drive rows with, and the columns AttemptCount and LastError")}
	}
	return &Sweeper{rows: r, cfg: cfg, drive: drive, counted: rollup.New(r.pool, rollup.Consumer)}, nil
}

// Run makes a pass at once and then every Every, until ctx ends, and returns nil. It returns no
// error: what fails is an event, and the next pass tries it again. Claims are accepted while it runs.
func (s *Sweeper) Run(ctx context.Context) error {
	s.rows.swept.newest.Store(s)
	s.rows.swept.running.Add(1)
	defer s.rows.swept.running.Add(-1)
	defer func() { s.addCounts(context.WithoutCancel(ctx)) }()
	for {
		if _, err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.tell(ctx, pawl.Event{Kind: pawl.EventError, Op: "guard.sweep", Err: err})
		}
		s.addCounts(context.WithoutCancel(ctx)) // what a stop cuts off is not counted
		if !pace.Sleep(ctx, s.cfg.Every) {
			return nil
		}
	}
}

// Pass makes one pass and returns how many rows it drove. Another sweeper's pass at the same time makes it return 0.
func (s *Sweeper) Pass(ctx context.Context) (driven int, err error) {
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
		failure := txn.Safely(func() error { return s.drive(ctx, id) }) // a panic must not end the process
		switch {
		case failure == nil, errors.Is(failure, pawl.ErrAlreadyHandled), errors.Is(failure, pawl.ErrInProgress):
			driven++
		case errors.Is(failure, pawl.ErrFailureRecorded):
			driven++
			s.tell(ctx, pawl.Event{Kind: failedKind(failure), Op: "guard.sweep", Key: id, Err: failure})
		case errors.As(failure, new(refusedError)): // told
		case ctx.Err() == nil:
			s.tell(ctx, pawl.Event{Kind: pawl.EventError, Op: "guard.sweep", Key: id, Err: failure})
		}
	}
	return driven, nil
}

// passResult is what one pass has found. Its transaction has committed.
type passResult struct {
	due     []string // ids of the rows that are pending again
	taken   int      // rows whose holder was silent
	usedUp  []usedUp
	counted bool
	final   int64 // if counted: rows that are not driven any more
}

// collect makes the rows pending that are due, marks those whose attempts are used up, and commits.
// A crash after it costs PendingAfter.
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

// highest is how far the column Monotone has come. Its order names the table: the column alone would be the text of the result, where 9 is
// above 10.
const highest = `select t.{Monotone}::text
  from {Name} as t
 order by t.{Monotone} desc nulls last
 limit 1`

// look notes how far the column Monotone has come.
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

// When a row is due, by its state and the columns that the table has.
const (
	stuck     = `{ClaimedAt} < {now} - {StuckAfter}`
	notFinal  = `coalesce({LastError}, '') not like '{final}%'`
	attempts  = `{AttemptCount} < {MaxAttempts}`
	spent     = `{AttemptCount} >= {MaxAttempts}`
	failed    = attempts + ` and ` + notFinal
	rested    = `({ClaimedAt} is null or {ClaimedAt} < {now} - least({MaxWait}, {Wait} * 2 ^ least({AttemptCount} - 1, 30)) * interval '1 microsecond')`
	created   = `{CreatedAt} < {now} - {PendingAfter}`
	claimed   = `{ClaimedAt} < {now} - {PendingAfter}`
	either    = `greatest({ClaimedAt}, {CreatedAt}) < {now} - {PendingAfter}` // greatest skips nulls
	unclaimed = `{Monotone} <= {seen}`
	both      = `case when {ClaimedAt} is null then {unclaimed} else ` + claimed + ` end`
)

// A condition is a state in which rows are due, and what else must hold.
type condition struct{ state, also string }

// due are the sorts of rows to be driven.
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

// pending says when a row is due that nothing works on; "" if that cannot be told.
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

// unclaimed says of rows that were never claimed that they are old enough, by the column Monotone.
func (s *Sweeper) unclaimed() string {
	if len(s.seen) == 0 || time.Since(s.seen[0].at) <= s.cfg.PendingAfter {
		return "false"
	}
	return s.fill(unclaimed, "{seen}", literal(s.seen[0].value))
}

// fill makes a text of its template with the times and bounds of this sweeper.
func (s *Sweeper) fill(template string, more ...string) string {
	micros := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	interval := func(d time.Duration) string { return "interval '" + micros(d) + " microseconds'" }
	return s.rows.table.fill(template, append([]string{"{StuckAfter}", interval(s.cfg.StuckAfter), "{PendingAfter}", interval(s.cfg.PendingAfter),
		"{Wait}", micros(s.cfg.Wait), "{MaxWait}", micros(s.cfg.MaxWait), "{MaxAttempts}", strconv.Itoa(s.cfg.MaxAttempts), "{Limit}", strconv.Itoa(s.cfg.Limit),
		"{final}", finalMark}, more...)...)
}

// giveBack makes rows pending that are due. The condition is tested again on the row that changes.
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

// take makes rows pending, and notes when, so that the next pass leaves them alone.
func (s *Sweeper) take(ctx context.Context, tx pgx.Tx, due condition) ([]string, error) {
	rows, err := tx.Query(ctx, s.fill(giveBack, "{state}", literal(due.state), "{also}", due.also))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
