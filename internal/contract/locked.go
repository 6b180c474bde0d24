package contract

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/verdict"
)

// ErrTableLocked means that another session holds a lock on a whole table, so nothing can be
// written to it. It counts as an outage and says nothing about the requested row.
var ErrTableLocked = errors.New("the table is locked as a whole, as CREATE INDEX, REINDEX, VACUUM FULL and ALTER TABLE do")

// LockedTable interprets the error of a statement that did not get a lock in time (55P03). If one
// of tables is locked as a whole, it returns an [ErrTableLocked]. Otherwise, and for other errors,
// it returns err. List the tables to which the statement writes; their names are resolved as in
// db's statements.
func LockedTable(ctx context.Context, db DB, err error, tables ...string) error {
	if !verdict.IsBusy(pawl.CodeOf(err)) {
		return err
	}
	if locked := Writable(ctx, db, tables...); errors.Is(locked, ErrTableLocked) {
		return locked
	}
	return err
}

// Writable returns an [ErrTableLocked] if one of the tables cannot be written to now.
func Writable(ctx context.Context, db DB, tables ...string) error {
	const query = "select pawl_v1._table_locked($1::pg_catalog.text[]::pg_catalog.regclass[])"
	var table *string
	if err := one(ctx, db, "table.locked", query, []any{tables}, &table); err != nil || table == nil {
		return err
	}
	return &pawl.Error{Op: "table.locked", Code: verdict.LockNotAvailable, Err: fmt.Errorf("%s: %w", *table, ErrTableLocked),
		Hint: "build indexes with CREATE INDEX CONCURRENTLY, and rebuild them with REINDEX CONCURRENTLY"}
}
