package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
)

// Redrive says which rows a [Sweeper] drives again, and when. Its zero value is fit for production.
type Redrive struct {
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
	// MaxAttempts is how often a row is tried in all; after that its error stays. Default 25.
	MaxAttempts int
	// Wait is the pause after the first error; it doubles with every attempt up to MaxWait. Without the column ClaimedAt there is
	// none. Default 30 s.
	Wait time.Duration
	// MaxWait bounds the pauses. Default 1 h.
	MaxWait time.Duration
	// Limit is how many rows one pass takes of each sort. Default 100.
	Limit int
	// Hooks receive what fails.
	Hooks pawl.Hooks
}

// A Sweeper drives rows again whose message is gone: those that failed, those whose holder died, and those that nobody came for.
// Several at once are safe; every process may run one.
type Sweeper struct {
	rows  *Rows
	cfg   Redrive
	drive func(ctx context.Context, id string) error

	mu   sync.Mutex
	seen []mark // how far the column Monotone had come, oldest first
}

// A mark is the highest value of the column Monotone that a pass saw.
type mark struct {
	at    time.Time
	value string
}

type sweepers struct{ running atomic.Int32 }

// Sweeper makes the sweeper of these rows. drive is called for each row that is pending again, with its id as text: do the work,
// with [Rows.Once] or [Rows.Claim], or send the message anew. If it fails the row is driven again after PendingAfter.
func (r *Rows) Sweeper(cfg Redrive, drive func(ctx context.Context, id string) error) (*Sweeper, error) {
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
	return &Sweeper{rows: r, cfg: cfg, drive: drive}, nil
}

// Run makes a pass at once and then every Every, until ctx ends. Claims are accepted while it runs.
func (s *Sweeper) Run(ctx context.Context) {
	s.rows.swept.running.Add(1)
	defer s.rows.swept.running.Add(-1)
	for {
		if _, err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.emit(ctx, "", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.cfg.Every):
		}
	}
}

// Pass makes one pass and returns how many rows it drove. Another sweeper's pass at the same time makes it return 0.
func (s *Sweeper) Pass(ctx context.Context) (driven int, err error) {
	var ids []string
	err = txn.Restart(ctx, func() (err error) {
		ids, err = s.collect(ctx)
		return err
	})
	for _, id := range ids {
		failure := txn.Safely(func() error { return s.drive(ctx, id) }) // a panic must not end the process
		switch {
		case failure == nil, errors.Is(failure, pawl.ErrAlreadyHandled), errors.Is(failure, pawl.ErrFailureRecorded), errors.Is(failure, pawl.ErrInProgress):
			driven++
		case ctx.Err() == nil:
			s.emit(ctx, id, failure)
		}
	}
	return driven, err
}

// collect makes the rows pending that are due, in one transaction, and returns their ids once that has committed. A crash after
// it costs PendingAfter.
func (s *Sweeper) collect(ctx context.Context) (ids []string, err error) {
	tx, err := txn.Begin(ctx, s.rows.pool, "guard.sweep", workTimeout)
	if err != nil {
		return nil, err
	}
	defer txn.Rollback(ctx, tx)
	if locked, err := TryLock(ctx, tx, "guard sweep", fmt.Sprintf("%.200s", s.rows.table.Name)); err != nil || !locked {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.look(ctx, tx); err != nil {
		return nil, pawl.Wrap("guard.sweep", err)
	}
	for _, due := range s.due() {
		some, err := s.take(ctx, tx, due)
		if err != nil {
			return nil, pawl.Wrap("guard.sweep", err)
		}
		ids = append(ids, some...)
	}
	return ids, txn.Commit(ctx, "guard.sweep", tx)
}

// look notes how far the column Monotone has come.
func (s *Sweeper) look(ctx context.Context, tx pgx.Tx) error {
	t := s.rows.table
	if t.CreatedAt != None || t.Monotone == None {
		return nil
	}
	var highest string
	column := quote(t.Monotone)
	err := tx.QueryRow(ctx, "select t."+column+"::text from "+t.quoted()+" as t order by t."+column+" desc nulls last limit 1").Scan(&highest)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil && (len(s.seen) == 0 || s.seen[len(s.seen)-1].value != highest) {
		s.seen = append(s.seen, mark{time.Now(), highest})
	}
	for len(s.seen) > 1 && time.Since(s.seen[1].at) > s.cfg.PendingAfter {
		s.seen = s.seen[1:]
	}
	return err
}

// unclaimed says of rows that were never claimed that they are old enough, by the column Monotone.
func (s *Sweeper) unclaimed() string {
	if len(s.seen) == 0 || time.Since(s.seen[0].at) <= s.cfg.PendingAfter {
		return "false"
	}
	return quote(s.rows.table.Monotone) + " <= " + literal(s.seen[0].value)
}

// due are the sorts of rows to be driven: the state they are in, and what else must hold.
func (s *Sweeper) due() (all []condition) {
	t, cfg := s.rows.table, s.cfg
	age := func(column string, d time.Duration) string {
		return fmt.Sprintf("%s < %s - interval '%d microseconds'", column, now, d.Microseconds())
	}
	failed := fmt.Sprintf("%s < %d and coalesce(%s, '') not like '%s%%'", quote(t.AttemptCount), cfg.MaxAttempts, quote(t.LastError), finalMark)
	if t.ClaimedAt == None {
		all = append(all, condition{t.Error, failed})
		if t.CreatedAt != None {
			all = append(all, condition{t.Pending, age(quote(t.CreatedAt), cfg.PendingAfter)})
		} else if t.Monotone != None {
			all = append(all, condition{t.Pending, s.unclaimed()})
		}
		return all
	}
	wait := fmt.Sprintf("%s < %s - least(%d, %d * 2 ^ least(%s - 1, 30)) * interval '1 microsecond'", quote(t.ClaimedAt), now,
		cfg.MaxWait.Microseconds(), cfg.Wait.Microseconds(), quote(t.AttemptCount))
	last := quote(t.ClaimedAt)
	if t.CreatedAt != None {
		last = fmt.Sprintf("greatest(%s, %s)", quote(t.ClaimedAt), quote(t.CreatedAt)) // greatest skips nulls
	}
	pending := age(last, cfg.PendingAfter)
	if t.CreatedAt == None && t.Monotone != None {
		pending = fmt.Sprintf("case when %s is null then %s else %s end", quote(t.ClaimedAt), s.unclaimed(), pending)
	}
	return []condition{
		{t.Processing, age(quote(t.ClaimedAt), cfg.StuckAfter)},
		{t.Error, failed + " and (" + quote(t.ClaimedAt) + " is null or " + wait + ")"},
		{t.Pending, pending},
	}
}

type condition struct{ state, also string }

// take makes rows pending, and notes when, so that the next pass leaves them alone. The condition is tested again on the row that
// changes.
func (s *Sweeper) take(ctx context.Context, tx pgx.Tx, due condition) ([]string, error) {
	t := s.rows.table
	is := quote(t.Status) + " = " + literal(due.state) + " and " + due.also
	set := quote(t.Status) + " = " + literal(t.Pending)
	if t.ClaimedAt != None {
		set += ", " + quote(t.ClaimedAt) + " = " + now
	}
	query := fmt.Sprintf("update %[1]s set %[2]s where %[3]s = any (array(select %[3]s from %[1]s where %[4]s limit %[5]d for update skip locked)) and %[4]s returning %[3]s::text",
		t.quoted(), set, quote(t.ID), is, s.cfg.Limit)
	rows, err := tx.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (s *Sweeper) emit(ctx context.Context, id string, err error) {
	s.cfg.Hooks.Emit(context.WithoutCancel(ctx), pawl.Event{Kind: pawl.EventTrouble, Op: "guard.sweep", Scope: s.rows.table.Name, Key: id, Err: err})
}
