// Package sqldriver checks whether a database/sql handle runs on pgx. Pawl reads PostgreSQL's error
// codes from pgx's errors and passes arrays in pgx's way. On another driver, a refused statement
// would look like a lost connection and be retried.
package sqldriver

import (
	"cmp"
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

// Hint tells how to fix an error of Check.
const Hint = `import _ "github.com/jackc/pgx/v5/stdlib" and call sql.Open("pgx", url), or stdlib.OpenDBFromPool`

// asked holds the handles that are not pgx's own but were found to behave like it. A *sql.DB is
// held as a weak pointer, so that it can be freed. A Go type is not a key, because one type may
// wrap two drivers.
var asked sync.Map

// Foreign means that a driver is neither pgx's nor a wrapper that passes pgx's errors and arrays
// through.
type Foreign struct{ Driver string }

func (f *Foreign) Error() string {
	return fmt.Sprintf("the database/sql driver is %s, and not pgx", f.Driver)
}

// OnPgx marks a driver.Tx of Pawl's that runs on pgx's driver.
type OnPgx interface{ OnPgx() }

// A handle is a *sql.DB, *sql.Conn or *sql.Tx, or a replacement of one.
type handle interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Check returns a *Foreign if h does not run on pgx. It recognises pgx's driver by its type.
// Another driver may wrap pgx's, as tracing drivers do. Check tests such a *sql.DB once, with two
// statements, or tests its first transaction behind a savepoint. Other errors come from the
// database. Check accepts all other handles; see [Judge].
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

// checkTx recognises a transaction by the type of its driver.Tx, which is a private field of
// database/sql. If database/sql renames the field, checkTx accepts the transaction, and [Judge]
// looks at its errors.
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

// handleOf returns the *sql.DB of a transaction. If database/sql renames the private field,
// handleOf returns nil, and each transaction is tested.
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

// once runs question until it has returned nil for the handle. A handle that cannot be a map key is
// tested each time.
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

// ask sends an error and an array through a driver. The statements in undo make a transaction
// usable after the error.
func ask(ctx context.Context, h handle, name string, undo ...string) error {
	foreign := &Foreign{name}
	_, failed := number(ctx, h, "select 1 operator(pg_catalog./) 0")
	for _, statement := range undo {
		if _, err := number(ctx, h, statement); err != nil {
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
		return failed // the driver could not be tested
	}
	if n, err := number(ctx, h, "select pg_catalog.cardinality($1::pg_catalog.text[])", []string{"a", "b"}); err != nil || n != 2 {
		return foreign
	}
	return nil
}

// number runs a statement that returns a number or nothing. QueryRowContext of a wrapper may drop
// an error.
func number(ctx context.Context, h handle, statement string, args ...any) (n int, err error) {
	rows, err := h.QueryContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	for rows.Next() && err == nil {
		err = rows.Scan(&n)
	}
	return n, cmp.Or(err, rows.Err(), rows.Close())
}

// Judge returns a *Foreign for an error that PostgreSQL gave to another driver than pgx, because
// its code would be lost. It returns other errors unchanged.
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
