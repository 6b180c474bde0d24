package command

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/verdict"
)

func (a *Attempt[T]) renew(ctx context.Context) error {
	i := a.call.intent
	err := contract.CommandRenew(ctx, a.pool, i.Scope, i.Key, a.Fence(), a.opts.Lease)
	if refusal(err) == "succeeded" {
		return err
	}
	return a.note(err)
}

// note remembers a refusal by the database for good, even if the caller drops the error.
func (a *Attempt[T]) note(err error) error {
	var e *pawl.Error
	if errors.As(err, &e) && e.Code == pawl.CodeFenceLost {
		a.refused.CompareAndSwap(nil, e)
		a.lose(e)
		a.call.refusedAsStale(a.ctx, e.Op, e)
	}
	return err
}

// lost returns why the attempt was refused, or nil.
func (a *Attempt[T]) lost() error {
	if e := a.refused.Load(); e != nil {
		return e
	}
	return nil
}

// refusal returns the DETAIL of a P4020: the status of the command.
func refusal(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == string(pawl.CodeFenceLost) {
		return pg.Detail
	}
	return ""
}

// keepAlive renews the lease at a third of it. The attempt's context ends if the database refuses
// the renewal, or if no renewal succeeded within a lease.
func (a *Attempt[T]) keepAlive(ctx context.Context) {
	beat, step := a.call.claimedAt, a.opts.Lease/3
	for pace.Sleep(ctx, step) {
		asked := time.Now()
		if asked.Sub(beat) > a.opts.Lease {
			a.lose(&pawl.Error{Op: "command.renew", Code: pawl.CodeFenceLost, Err: errors.New("the lease expired without a renewal")})
		}
		limited, cancel := context.WithTimeout(ctx, a.opts.Lease/6)
		err := a.renew(limited)
		cancel()
		step = a.opts.Lease / 3
		switch {
		// Busy: an open transaction has locked the row, so no other attempt can take it over.
		case err == nil, verdict.IsBusy(pawl.CodeOf(err)):
			beat = asked
		case refusal(err) != "" || ctx.Err() != nil:
			return
		default:
			a.call.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "command.renew", Err: err})
			step = a.opts.Lease / 12
		}
	}
}
