package delivery

import (
	"context"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// ErrTableLocked is [contract.ErrTableLocked].
var ErrTableLocked = contract.ErrTableLocked

// tables are the tables that a delivery may write to.
var tables = []string{"pawl.inbox", "pawl.delivery", "pawl.lane", "pawl.job", "pawl.sequence_gate", "pawl.sequence_gate_held"}

// LockedTable interprets err, a lock timeout of a delivery. If a whole table is locked, it returns
// [ErrTableLocked], which counts as an outage. Otherwise it returns err.
func LockedTable(ctx context.Context, db pawl.DB, err error) error {
	return contract.LockedTable(ctx, db, err, tables...)
}

// Writable returns [ErrTableLocked] if one of the tables cannot be written to now.
func Writable(ctx context.Context, db pawl.DB) error { return contract.Writable(ctx, db, tables...) }
