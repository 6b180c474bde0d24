package contract

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/verdict"
)

// ErrTableLocked is why nothing can be written to a table now: another session holds a lock on the
// table as a whole. It is an outage, and says nothing about the row that was asked for.
var ErrTableLocked = errors.New("the table is locked as a whole, as CREATE INDEX, REINDEX, VACUUM FULL and ALTER TABLE do")

// LockedTable returns the error of a statement that did not get a lock in time (55P03): one that is
// [ErrTableLocked] if one of the tables, which it writes to, is locked as a whole; else err itself,
// as it does if err is another error. Table names are resolved as in db's statements.
func LockedTable(ctx context.Context, db DB, err error, tables ...string) error {
	if !verdict.IsBusy(pawl.CodeOf(err)) {
		return err
	}
	if locked := Writable(ctx, db, tables...); errors.Is(locked, ErrTableLocked) {
		return locked
	}
	return err
}

// Writable returns an error that is [ErrTableLocked] if nothing can be written to one of the tables
// now.
func Writable(ctx context.Context, db DB, tables ...string) error {
	const query = "select pawl_v1._table_locked($1::pg_catalog.text[]::pg_catalog.regclass[])"
	var table *string
	if err := one(ctx, db, "table.locked", query, []any{tables}, &table); err != nil || table == nil {
		return err
	}
	return &pawl.Error{Op: "table.locked", Code: verdict.LockNotAvailable, Err: fmt.Errorf("%s: %w", *table, ErrTableLocked),
		Hint: "build indexes with CREATE INDEX CONCURRENTLY, and rebuild them with REINDEX CONCURRENTLY"}
}
