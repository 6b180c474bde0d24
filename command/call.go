package command

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
)

// A call is one caller's request, over all its transactions.
type call[X any] struct {
	database   database[X]
	db         pawl.DB                                        // outside the command's transaction
	replicated func(ctx context.Context, readOn string) error // see [txn.Replicated]
	intent     pawl.Intent
	opts       Options
	row        contract.CommandRow // of this call's newest attempt
	asked      map[int64]bool      // fences of attempts whose COMMIT got no reply

	claimedAt time.Time    // when the lease was requested
	stale     atomic.Int64 // the fence of the attempt whose refusal was reported
}

// A callAnswer is the answer of a command, stored by this call or by another one.
type callAnswer struct {
	answer  Answer
	ours    bool
	attempt int
	fence   int64
}

// These errors end a transaction of a call. The caller never sees them.
type (
	busyError     struct{ after time.Duration } // another call holds the key
	askAgainError struct{ err error }           // claim again to learn the outcome
)

func (b *busyError) Error() string     { return "busy" }
func (a *askAgainError) Error() string { return a.err.Error() }

const (
	// rounds bounds how often one call asks for the outcome of a transaction.
	rounds = 8
	// askFor bounds how long a call asks for the outcome of its own COMMIT that got no reply.
	askFor = 20 * time.Second
	// abandonAfter is how long after the handler's timeout the server ends an idle transaction.
	abandonAfter = 10 * time.Second
)

// run repeats claim, handle and commit while the transaction loses a race, its COMMIT gets no
// reply, or another call holds the key. It never guesses: it claims again and reads the row.
func (c *call[X]) run(ctx context.Context, work func(context.Context, X) (Answer, error)) (callAnswer, error) {
	p := patience{until: time.Now().Add(c.opts.Wait)}
	for round := 0; ; {
		var d callAnswer
		err := txn.Restart(ctx, func() (err error) {
			d, err = c.try(ctx, work)
			return err
		})
		if c.spent(err) {
			err = c.mark(ctx, err)
		}
		switch e := err.(type) {
		case *busyError:
			if !p.wait(ctx, c.intent) {
				return callAnswer{}, c.impatient(ctx, e)
			}
		case *askAgainError:
			if round++; round > rounds || !pace.Sleep(ctx, rand.N(20*time.Millisecond<<round)) {
				return callAnswer{}, c.undecided(e.err)
			}
			if c.asked != nil {
				p.until = later(p.until, time.Now().Add(askFor))
			}
		default:
			return d, err
		}
	}
}

// try runs one transaction, which commits an answer or a failure, or finds an answer. If most calls
// of the scope find one, try first looks for it without a transaction.
func (c *call[X]) try(ctx context.Context, work func(context.Context, X) (Answer, error)) (d callAnswer, err error) {
	if c.asked == nil && habits.answered(c.intent.Scope) {
		row, found, err := contract.CommandLook(ctx, c.db, c.intent)
		switch {
		case err != nil:
			return d, c.refused(ctx, err)
		case found:
			habits.note(c.intent.Scope, true)
			return c.look(ctx, row)
		}
	}
	tx, row, err := c.database.open(ctx, c.intent, c.opts.Isolation, c.opts.Timeout+abandonAfter)
	if err != nil {
		return d, c.refused(ctx, err)
	}
	habits.note(c.intent.Scope, row.Seen())
	if !row.Held() {
		return c.answered(ctx, tx, row)
	}
	defer tx.rollback(ctx)
	defer inFlight.enter(c.intent)()
	c.row = row

	// open: a crash here costs nothing, because nothing was written.
	if err := fault.At("command.claim.after"); err != nil {
		return d, c.failed(ctx, tx, err)
	}
	start := time.Now()
	answer, failure := c.handle(ctx, tx, work)
	if declined := declinedIn(failure); declined != nil {
		answer, failure = declined.answer, nil // its rows are rolled back, the transaction stands
	}
	if failure != nil {
		return d, c.failed(ctx, tx, failure)
	}
	took := time.Since(start)

	end := func(ctx context.Context, op string) error {
		return tx.close(ctx, op, contract.CommandCloseArgs{Intent: c.intent, Fence: row.Fence, Xact: row.Xact,
			Retention: c.opts.Retention, Answer: answer.stored()})
	}
	if err := commit(ctx, end); err != nil {
		tx.rollback(ctx)
		return d, c.unfinished(ctx, err)
	}
	c.emit(ctx, pawl.Event{Kind: pawl.EventSucceeded, Op: "command.commit", Took: took})
	return callAnswer{answer: answer, ours: true, attempt: row.Attempts, fence: row.Fence}, nil
}

// handle runs the handler behind the savepoint.
//
// handle: a crash here costs nothing, because its rows were never visible.
func (c *call[X]) handle(ctx context.Context, tx opened[X], work func(context.Context, X) (Answer, error)) (answer Answer, err error) {
	ctx = withInfo(ctx, Info{c.intent, c.row.Attempts, c.row.Fence})
	err = tx.guard(ctx, c.opts.Timeout, func(ctx context.Context, tx X) error {
		if err := fault.At("command.handle.before"); err != nil {
			return err
		}
		if answer, err = work(ctx, tx); err != nil {
			return err
		}
		return fault.At("command.handle.after")
	})
	return answer, err
}

// commit makes the rows and the answer durable together.
//
// commit: a crash before COMMIT arrives costs the attempt, and nothing of it remains. After COMMIT
// it costs nothing: a retry gets the stored answer.
func commit(ctx context.Context, send func(context.Context, string) error) error {
	if err := fault.At("command.commit.before"); err != nil {
		return &pawl.Error{Op: "command.commit", Code: pawl.CodeCommitUnknown, Err: err}
	}
	if err := send(ctx, "command.commit"); err != nil {
		return err
	}
	if err := fault.At("command.commit.after"); err != nil { // simulates a lost reply
		return &pawl.Error{Op: "command.commit", Code: pawl.CodeCommitUnknown, Err: err}
	}
	return nil
}

// look returns the answer that was found without a transaction.
func (c *call[X]) look(ctx context.Context, row contract.CommandRow) (callAnswer, error) {
	if row.Outcome == "processing_active" {
		return callAnswer{}, &busyError{row.RetryAfter}
	}
	return c.storedAnswer(ctx, row)
}

// answered returns the answer that a claim found. It does not wait for the transaction's rollback.
func (c *call[X]) answered(ctx context.Context, tx opened[X], row contract.CommandRow) (callAnswer, error) {
	switch row.Outcome {
	case "processing_active":
		tx.rollback(ctx)
		return callAnswer{}, &busyError{row.RetryAfter}
	// This claim may have set the status. If its COMMIT fails, the next claim sets it.
	case "unknown":
		if err := tx.commit(ctx, "command.claim"); err != nil {
			c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "command.claim", Err: err})
		}
		tx.rollback(ctx)
	default:
		go tx.rollback(ctx)
	}
	return c.storedAnswer(ctx, row)
}

// storedAnswer returns the answer of a command that no attempt runs, once its row is replicated.
func (c *call[X]) storedAnswer(ctx context.Context, row contract.CommandRow) (d callAnswer, err error) {
	if err := c.replicated(ctx, row.ReadOn); err != nil {
		return d, c.undecided(err) // the answer may be of this call's own COMMIT
	}
	e := pawl.Event{Kind: pawl.EventReplay, Op: "command.claim", Attempt: row.Attempts}
	switch row.Outcome {
	case "replay_success":
		d = callAnswer{answerOf(row), c.asked[row.Fence], row.Attempts, row.Fence}
		if d.ours {
			e.Kind = pawl.EventSucceeded
		}
	case "final_failure":
		err = replayed("command.claim", row)
	case "unknown":
		err = replayed("command.claim", row)
		e.Kind, e.Err = pawl.EventUnknown, err
	case "mismatch":
		err = keyReused("command.claim", c.intent)
		e.Kind, e.Err = pawl.EventMismatch, err
	default:
		return d, &pawl.Error{Op: "command.claim", Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
	}
	c.emit(ctx, e)
	return d, err
}

// refused decides what to do after an error of a claim.
func (c *call[X]) refused(ctx context.Context, err error) error {
	switch {
	case verdict.IsBusy(pawl.CodeOf(err)):
		return &busyError{}
	case txn.LostRace(err):
		return err
	case c.asked != nil && pawl.Retryable(err):
		return &askAgainError{err}
	}
	return c.undecided(err)
}

// failed records a failure in the transaction that holds the key, after a rollback to its
// savepoint, so no other call gets the key in between. If that transaction is lost, mark records
// it.
func (c *call[X]) failed(ctx context.Context, tx opened[X], cause error) error {
	switch {
	// The handler tried to end the transaction, or did. Then its later writes may be durable.
	case errors.Is(cause, txn.ErrEnded):
		tx.rollback(ctx)
		return c.mark(ctx, cause)
	case txn.LostRace(cause):
		return cause
	case errors.Is(cause, txn.ErrLost):
		tx.rollback(ctx)
		return c.unfinished(ctx, cause)
	}
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), markFor)
	defer cancel()
	row, err := contract.CommandFail(detached, tx.db(), c.failArgs(cause))
	if err == nil {
		err = tx.commit(detached, "command.fail")
	}
	switch {
	case txn.LostRace(err):
		return err
	case err != nil:
		tx.rollback(ctx)
		return c.mark(ctx, cause)
	}
	return c.told(ctx, row, cause)
}

// unfinished decides what to do if the call's own transaction did not commit.
func (c *call[X]) unfinished(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, txn.ErrEnded):
		// Ended through the connection, so its later writes may be durable.
		return c.mark(ctx, err)
	case txn.LostRace(err):
		return err
	case pawl.MayHaveHappened(err) && !errors.Is(err, txn.ErrLost):
		if c.asked == nil {
			c.asked = map[int64]bool{}
		}
		c.asked[c.row.Fence] = true
		c.emit(ctx, pawl.Event{Kind: pawl.EventCommitUnknown, Op: "command.commit", Err: err})
		return &askAgainError{err}
	case (pawl.Unreachable(err) || errors.Is(err, pawl.ErrTransactionLost)) && ctx.Err() == nil:
		c.emit(ctx, pawl.Event{Kind: pawl.EventWastedWork, Op: "command.handle", Err: err})
		return err // nothing is recorded; the caller may retry
	}
	return c.mark(ctx, err) // for example a deferred constraint
}

// spent reports whether an attempt has started and used up its restarts.
func (c *call[X]) spent(err error) bool { return c.row.Fence != 0 && txn.LostRace(err) }

// impatient returns the error for a caller whose Wait expired while another call held the key.
func (c *call[X]) impatient(ctx context.Context, b *busyError) error {
	if c.asked != nil {
		return c.undecided(errors.New("the old transaction has not ended"))
	}
	if err := ctx.Err(); err != nil {
		return pawl.Wrap("command.wait", context.Cause(ctx))
	}
	err := errInProgress("command.claim", b.after)
	c.emit(ctx, pawl.Event{Kind: pawl.EventConflict, Op: "command.claim", Err: err})
	return err
}

// undecided returns the error for a caller when the database could not be asked for the outcome.
func (c *call[X]) undecided(err error) error {
	if c.asked == nil {
		return err
	}
	return &pawl.Error{Op: "command.commit", Code: pawl.CodeCommitUnknown, Err: err}
}

func (c *call[X]) emit(ctx context.Context, e pawl.Event) {
	e.Scope, e.Key = c.intent.Scope, c.intent.Key
	if e.Attempt == 0 {
		e.Attempt = c.row.Attempts
	}
	c.opts.Hooks.Emit(context.WithoutCancel(ctx), e)
}
