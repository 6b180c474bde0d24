package pawltest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pace"
)

// A WorkTest tests any other worker of yours, such as a function that finds its work in a table, on
// databases of its own. However often it runs, and wherever the process dies, your tables and the
// enqueued jobs must be as after one undisturbed run. The comparison is that of [HandlerTest].
//
// [Twice] makes two runs at once meet: both read before either of them writes. So a worker that
// selects a row and then acts on it fails each time, and not once in a thousand times.
//
// [CrashEverywhere] also lets the process stall before each statement. Meanwhile Make is called for
// another process, whose worker runs to its end. Then the first goes on. So a worker that commits
// after its lease has passed to another is found: it takes effect again, or it overwrites what the
// other wrote. The first goes on earlier if the other waits for one of its locks.
type WorkTest struct {
	// Schema holds scripts that make your tables, and the row that the worker works on.
	Schema []string
	// Make returns the worker, which must use the pool. It is called for each database, and again
	// after a death or a lost reply, and beside a stalled process. If a column of your table is a
	// lease, move it into the past there.
	//
	// The worker returns nil if there is nothing left to do. [pawl.ErrAlreadyHandled] counts as
	// nil. After an error that is [pawl.Retryable] it runs again.
	Make func(*pgxpool.Pool) func(context.Context) error
	// Ignore names more columns that are not compared, as "column" or "table.column", such as one
	// that a process that stalled may still write. Default none.
	Ignore []string
	// Check tests what else must hold at the end, such as the number of calls of another system. It
	// is called once for each database. Optional.
	Check func(testing.TB, *pgxpool.Pool)
}

func (p WorkTest) crashCase() crashCase {
	return crashCase{
		schema: p.Schema, ignore: p.Ignore, check: p.Check, finds: true, stalls: true,
		begin: func(_ context.Context, t *trial, of *process) (life, error) {
			work := p.Make(of.yours)
			return func(ctx context.Context) (contents, error) {
				of.running.RLock()
				defer of.running.RUnlock()
				return nil, t.untilHandled(ctx, work)
			}, nil
		},
		advice: "let one statement decide who works, such as update … where status = 'pending' or insert … on conflict do nothing, " +
			"and write the rows of the work in its transaction; if a lease decides, let the transaction that writes them check the claim's " +
			"token, such as update … where id = $1 and token = $2, and roll back if it changes no row; call other systems in a step of package step",
		untouched: "if your worker has a lease, move it into the past in Make; if not, it marks the work as done before it commits the work",
		idle:      "did the worker use the pool passed to Make?",
	}
}

// untilHandled retries soon, but not for ever beside a stalled process, which may hold the row.
func (t *trial) untilHandled(ctx context.Context, work func(context.Context) error) error {
	for tries := 1; ; tries++ {
		err := work(ctx)
		switch {
		case errors.Is(err, pawl.ErrAlreadyHandled):
			return nil
		case tries > 3 && t.stalling.Load():
			return err
		case !pawl.Retryable(err) || !pace.Sleep(ctx, 10*time.Millisecond):
			return err
		}
	}
}

// twice runs work twice at once, and returns the response of the first run.
func (t *trial) twice(ctx context.Context, work life) (contents, error) {
	var runs sync.WaitGroup
	release := func() error { return nil }
	if t.finds {
		var err error
		if release, err = t.hold(ctx); err != nil {
			return nil, err
		}
	}
	responses, errs, ended := make([]contents, 2), make([]error, 2), make(chan bool, 2)
	for i := range errs {
		runs.Go(func() {
			responses[i], errs[i] = work(ctx)
			ended <- true
		})
	}
	var own error
	if t.finds {
		own = errors.Join(t.met(ctx, ended), release())
	}
	runs.Wait()
	return responses[0], errors.Join(errs[0], errs[1], own)
}

// yourTables returns the tables outside of Pawl's schemas.
const yourTables = "select format('%I.%I', n.nspname, c.relname) from pg_class as c join pg_namespace as n on n.oid = c.relnamespace " +
	"where c.relkind in ('r', 'p') and n.nspname !~ '^pg_' and n.nspname not in ('information_schema', 'pawl', 'pawl_v1') order by 1"

// hold locks your tables, so that writes wait for the release. Reads and row locks pass.
func (t *trial) hold(ctx context.Context) (release func() error, err error) {
	rows, err := t.eyes.Query(ctx, yourTables)
	if err != nil {
		return nil, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		return func() error { return nil }, err
	}
	tx, err := t.eyes.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "lock table "+strings.Join(tables, ", ")+" in share mode"); err != nil {
		return nil, errors.Join(err, tx.Rollback(ctx))
	}
	return func() error { return tx.Rollback(context.WithoutCancel(ctx)) }, nil
}

// mostLooks bounds the looks at two runs that have to meet, 10 ms apart.
const mostLooks = 500

// met waits until each of the runs waits for a lock or has ended. If one does neither in time, for
// instance because it waits in Go for the other, they go on as they are.
func (t *trial) met(ctx context.Context, ended <-chan bool) error {
	for range mostLooks {
		var waiting int
		err := t.eyes.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and application_name like $1 || '%' "+
			"and wait_event_type = 'Lock'", processName).Scan(&waiting)
		if err != nil {
			return fmt.Errorf("waiting for two runs to meet: %w", err)
		}
		if waiting+len(ended) >= cap(ended) || !pace.Sleep(ctx, 10*time.Millisecond) {
			break
		}
	}
	return nil
}
