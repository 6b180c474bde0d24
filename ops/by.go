package ops

import (
	"context"
	"fmt"
	"slices"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
)

// By says who changes something and why. Both go into the audit.
type By struct {
	// Actor is a person or a program, 1 to 255 octets. It is a claim: what a login may do is the roles' business.
	Actor string
	// Reason is for the reader of the audit, 1 to 4000 octets.
	Reason string

	dryRun bool
}

// DryRun stands in place of a [By]: the verb says what it would do, and changes nothing. It needs the rights of the verb, and takes the
// same locks for a moment.
var DryRun = By{Actor: "dry run", Reason: "dry run", dryRun: true}

// once runs a verb that changes one thing, or lets it run and takes the change back.
func (b By) once(ctx context.Context, db pawl.DB, op string, do func(db pawl.DB) (Result, error)) (r Result, err error) {
	if !b.dryRun {
		r, err = do(db)
	} else {
		err = catalog.RolledBack(ctx, db, func(db pawl.DB) (err error) {
			r, err = do(db)
			return err
		})
		r.DryRun = true
	}
	if err != nil {
		return Result{}, err
	}
	if !slices.Contains(outcomes, r.Outcome) {
		return Result{}, &pawl.Error{Op: op, Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", r.Outcome)}
	}
	return r, nil
}
