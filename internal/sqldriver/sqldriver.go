// Package sqldriver tells whether a database/sql handle runs on pgx. Pawl reads PostgreSQL's error codes out of pgx's errors and passes arrays as
// pgx takes them. On another driver a refusal looks like a lost connection, and is tried again.
package sqldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"weak"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// Hint is what to do about an error of Check.
const Hint = `import _ "github.com/jackc/pgx/v5/stdlib" and call sql.Open("pgx", url), or stdlib.OpenDBFromPool`

// asked has the handles that were found to behave as pgx does and are not pgx's own, and of a
// *sql.DB a weak pointer, so that it can be freed. A Go type is no key: one type may wrap two
// drivers.
var asked sync.Map

// Foreign says that a driver is not pgx's, nor a wrapper that hands on what pgx says.
type Foreign struct{ Driver string }

func (f *Foreign) Error() string {
	return fmt.Sprintf("the database/sql driver is %s, and not pgx", f.Driver)
}

// OnPgx marks a driver's transaction of ours, which stands on pgx's driver.
type OnPgx interface{ OnPgx() }

// A handle is a *sql.DB, *sql.Conn or *sql.Tx, or what stands in its place.
type handle interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Check returns a *Foreign if h does not run on pgx. pgx's own driver is known by its type. Another
// may wrap it, as those that trace do: a *sql.DB is asked once, with two statements, or its first
// transaction is, behind a savepoint. Another error is that of the database. Of other handles
// nothing is known: see [Judge].
func Check(ctx context.Context, h handle) error {
	switch h := h.(type) {
	case *sql.Tx:
		return checkTx(ctx, h)
	case interface{ Driver() driver.Driver }:
		if _, own := h.Driver().(*stdlib.Driver); own {
			return nil
		}
		return once(h, func() error { return ask(ctx, h.(handle), fmt.Sprintf("%T", h.Driver())) })
	}
	return nil
}

// checkTx knows a transaction by the type of what its driver returned, which database/sql keeps to itself. If it moves that, errors tell.
func checkTx(ctx context.Context, tx *sql.Tx) error {
	held := reflect.ValueOf(tx).Elem().FieldByName("txi")
	if !held.IsValid() || held.Kind() != reflect.Interface || held.IsNil() {
		return nil
	}
	kind := held.Elem().Type()
	if pkgOf(kind) == reflect.TypeFor[stdlib.Driver]().PkgPath() || kind.Implements(reflect.TypeFor[OnPgx]()) {
		return nil
	}
	return once(handleOf(tx), func() error {
		if _, err := tx.ExecContext(ctx, "savepoint pawl_driver"); err != nil {
			return Judge(err)
		}
		found := ask(ctx, tx, kind.String(), "rollback to savepoint pawl_driver")
		_, err := tx.ExecContext(ctx, "release savepoint pawl_driver")
		return errors.Join(found, err)
	})
}

// handleOf returns the *sql.DB that a transaction is of. If database/sql moves it, the result is
// nil, and each transaction is asked.
func handleOf(tx *sql.Tx) any {
	db := reflect.ValueOf(tx).Elem().FieldByName("db")
	if !db.IsValid() || db.Type() != reflect.TypeFor[*sql.DB]() {
		return nil
	}
	return (*sql.DB)(db.UnsafePointer())
}

func pkgOf(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath()
}

// once asks a question until its answer was nil. A handle that cannot be remembered is asked each
// time.
func once(handle any, question func() error) error {
	key := handle
	db, _ := handle.(*sql.DB)
	if db != nil {
		key = weak.Make(db)
	}
	if key == nil || !reflect.ValueOf(key).Comparable() {
		return question()
	}
	if _, known := asked.Load(key); known {
		return nil
	}
	err := question()
	if err != nil {
		return err
	}
	if _, known := asked.LoadOrStore(key, true); !known && db != nil {
		runtime.AddCleanup(db, func(key any) { asked.Delete(key) }, key)
	}
	return nil
}

// ask has an error and an array go through a driver. undo makes a transaction usable after the error.
func ask(ctx context.Context, h handle, name string, undo ...string) error {
	foreign := &Foreign{name}
	var n int
	failed := h.QueryRowContext(ctx, "select 1 operator(pg_catalog./) 0").Scan(&n)
	for _, statement := range undo {
		if err := h.QueryRowContext(ctx, statement).Scan(&n); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	var pg *pgconn.PgError
	switch {
	case errors.As(failed, &pg) && pg.Code == "22012": // division_by_zero
	case errors.As(failed, &pg):
		return failed
	case failed == nil, Judge(failed) != failed:
		return foreign
	default:
		return failed // it could not be asked
	}
	if err := h.QueryRowContext(ctx, "select pg_catalog.cardinality($1::pg_catalog.text[])", []string{"a", "b"}).Scan(&n); err != nil || n != 2 {
		return foreign
	}
	return nil
}

// Judge returns a *Foreign in place of an error that PostgreSQL gave to another driver than pgx: its code would be lost. Others it returns as they are.
func Judge(err error) error {
	var coded interface {
		error
		SQLState() string
	}
	if err == nil || errors.As(err, new(*pgconn.PgError)) || !errors.As(err, &coded) {
		return err
	}
	return &Foreign{fmt.Sprintf("one whose errors are %T (%v)", coded, err)}
}
