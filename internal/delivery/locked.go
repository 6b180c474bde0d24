package delivery

import (
	"context"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// ErrTableLocked is [contract.ErrTableLocked].
var ErrTableLocked = contract.ErrTableLocked

// tables are those that a delivery may be written to.
var tables = []string{"pawl.inbox", "pawl.delivery", "pawl.lane", "pawl.job", "pawl.sequence_gate", "pawl.sequence_gate_held"}

// LockedTable returns the error of a delivery whose lock was not had in time: [ErrTableLocked] if
// it is that of a table, which is an outage; else err.
func LockedTable(ctx context.Context, db pawl.DB, err error) error {
	return contract.LockedTable(ctx, db, err, tables...)
}

// Writable returns [ErrTableLocked] if nothing can be written to one of the tables now.
func Writable(ctx context.Context, db pawl.DB) error { return contract.Writable(ctx, db, tables...) }
