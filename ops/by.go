package ops

import (
	"context"
	"fmt"
	"slices"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
)

// By says who changes something and why. Both are stored in the audit.
type By struct {
	// Actor is a person or a program, 1 to 255 bytes. It is not verified; database roles decide
	// what a login may do.
	Actor string
	// Reason is for readers of the audit, 1 to 4000 bytes.
	Reason string

	dryRun bool
}

// DryRun takes the place of a [By]: the verb returns what it would do and changes nothing. It needs
// the same rights as the verb, and takes the same locks for a moment.
var DryRun = By{Actor: "dry run", Reason: "dry run", dryRun: true}

// once runs a verb that changes one thing. In a dry run, it rolls the change back.
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
