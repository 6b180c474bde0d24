package txn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// ErrLost means that the transaction itself is gone, not only the work since the savepoint.
var ErrLost = errors.New("the transaction was lost")

// Guard runs user code behind a savepoint of tx. If fn fails, panics or overruns limit, the work since the savepoint is
// rolled back, tx stays usable, and Guard returns fn's error; if tx did not survive, the error also is [ErrLost].
func Guard(ctx context.Context, tx pgx.Tx, limit time.Duration, fn func(context.Context, pgx.Tx) error) error {
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return errors.Join(ErrLost, err)
	}
	failure := run(ctx, limit, savepoint, fn)
	if failure == nil {
		failure = release(ctx, tx, savepoint)
		if failure == nil {
			return nil
		}
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := savepoint.Rollback(back); err != nil {
		return errors.Join(ErrLost, failure)
	}
	return failure
}

func run(ctx context.Context, limit time.Duration, tx pgx.Tx, fn func(context.Context, pgx.Tx) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v, at %s", cause, panicSite())
		}
	}()
	return fn(ctx, tx)
}

// release ends the savepoint, and finds out whether the handler ended the transaction behind our back.
func release(ctx context.Context, tx, savepoint pgx.Tx) error {
	err := savepoint.Commit(ctx)
	switch {
	case errors.Is(err, pgx.ErrTxClosed):
		return errors.Join(ErrLost, errors.New("the handler ended the transaction it was lent; it must not commit or roll back"))
	case err != nil && tx.Conn().PgConn().TxStatus() == 'I':
		// It sent COMMIT or ROLLBACK as text. What it wrote may be durable, the claim with it: ask again.
		return &pawl.Error{Op: "handler", Code: pawl.CodeCommitUnknown,
			Err: errors.Join(ErrLost, errors.New("the handler ended the transaction it was lent; it must not commit or roll back"))}
	}
	return err
}

// panicSite names the first frame of user code under the panic, for the error history; a full stack would not fit.
func panicSite() string {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, "runtime.") {
			return fmt.Sprintf("%s (%s:%d)", frame.Function, frame.File, frame.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}

// restarts bounds how often one transaction is run again after losing a race.
const restarts = 8

// Restart runs attempt, a whole transaction, again as long as it fails with 40001 (serialization failure) or 40P01
// (deadlock), with jitter, at most 8 times. PostgreSQL documents that such a transaction must be retried from its start.
func Restart(ctx context.Context, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		if code := pawl.CodeOf(err); n == restarts || (code != "40001" && code != "40P01") {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(time.Duration(n) * 20 * time.Millisecond)):
		}
	}
}
