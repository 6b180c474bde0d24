// Package contract calls the SQL functions of schema pawl_v1, with one Go function per SQL
// function. Columns are named, and errors become pawl.Error. It holds no logic; other packages
// interpret the results.
package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/internal/watched"
)

// DB runs the calls.
type DB = pawl.DB

// Batcher sends several statements as one transaction in one round trip, as *pgxpool.Pool does.
type Batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Options is the trailing jsonb argument of a function. Absent members take the function's
// defaults.
type Options map[string]any

// set adds a member unless its value is zero. Then the function's default applies.
func set[T comparable](o Options, name string, value T) {
	var zero T
	if value != zero {
		o[name] = value
	}
}

// given returns nil for a zero value, which becomes null in an array.
func given[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	there := value // so that a zero value does not escape to the heap
	return &there
}

func (o Options) text() string {
	if len(o) == 0 {
		return "{}"
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // members are strings, numbers and maps of strings
	}
	return string(text)
}

// exact is text for members that must arrive unchanged. JSON replaces bytes that are not UTF-8, so
// two keys could become one. With such a member, exact returns invalid UTF-8 too, and PostgreSQL
// refuses it (22021) like any such argument.
func (o Options) exact() string {
	if !allUTF8(reflect.ValueOf(o)) {
		return "\xff"
	}
	return o.text()
}

// allUTF8 checks strings inside maps, slices and pointers, of which options and headers consist.
func allUTF8(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || allUTF8(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if !allUTF8(v.Index(i)) {
				return false
			}
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			if !allUTF8(entry.Key()) || !allUTF8(entry.Value()) {
				return false
			}
		}
	}
	return true
}

// Failure is the p_error of job_fail and the error option of inbox_store.
type Failure struct {
	Error string `json:"error"`
	Code  string `json:"code,omitempty"`
}

// maxFailure is the number of characters of an error that are stored.
const maxFailure = 4000

// FailureOf describes err in at most 4,000 characters, without characters that jsonb cannot hold.
func FailureOf(err error) Failure {
	return Failure{Error: text.Characters(err.Error(), maxFailure), Code: text.Characters(string(pawl.CodeOf(err)), maxFailure)}
}

// column returns one field of all rows. Functions that take many rows take one array a field.
func column[R, T any](rows []R, field func(R) T) []T {
	values := make([]T, len(rows))
	for i, r := range rows {
		values[i] = field(r)
	}
	return values
}

// sparse is column for optional fields. It returns nil, an absent array, if no row has the field.
func sparse[R, T any](rows []R, field func(R) *T) []*T {
	if !slices.ContainsFunc(rows, func(r R) bool { return field(r) != nil }) {
		return nil
	}
	return column(rows, field)
}

// numbers and words scan arrays with pgx and with database/sql.
type (
	numbers struct{ pgtype.FlatArray[int64] }
	words   struct{ pgtype.FlatArray[string] }
)

// Scan implements sql.Scanner.
func (n *numbers) Scan(array any) error {
	return pgtype.NewMap().SQLScanner((*[]int64)(&n.FlatArray)).Scan(array)
}

// Scan implements sql.Scanner.
func (w *words) Scan(array any) error {
	return pgtype.NewMap().SQLScanner((*[]string)(&w.FlatArray)).Scan(array)
}

// octets makes a nil payload empty, because pgx sends a nil slice as NULL.
func octets(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// scanDetail scans a detail column with database/sql and with pgx.
func scanDetail(detail, into any) error {
	switch text := detail.(type) {
	case nil:
		return nil
	case []byte:
		return json.Unmarshal(text, into)
	case string:
		if text == "{}" { // the normal case
			return nil
		}
		return json.Unmarshal([]byte(text), into)
	}
	return fmt.Errorf("a detail is %T", detail)
}

// one runs a statement that returns exactly one row. On a pool or connection it is a transaction of
// its own. Then one also checks whether its COMMIT stopped waiting for a standby.
func one(ctx context.Context, on DB, op, sql string, args []any, into ...any) error {
	return scanned(ctx, on, op, sql, args, func(row pgx.Row) error { return row.Scan(into...) })
}

// scanned is one with a scan function for the row.
func scanned(ctx context.Context, on DB, op, sql string, args []any, scan func(pgx.Row) error) error {
	db, heard, release, err := listened(ctx, on)
	if err != nil {
		return pawl.Wrap(op, err)
	}
	defer release()
	if err := scan(db.QueryRow(ctx, sql, args...)); err != nil {
		leaveStandby(on, err)
		return pawl.Wrap(op, err)
	}
	return checkReplicated(op, heard)
}

// listened returns the handle to send a statement on. If the statement is a transaction of its own,
// heard records the end of its COMMIT.
func listened(ctx context.Context, db DB) (_ DB, heard *watched.Statement, release func(), err error) {
	switch on := db.(type) {
	case *pgxpool.Pool:
		conn, err := on.Acquire(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		heard, _ = watched.Begin(conn.Conn().PgConn())
		return conn, heard, conn.Release, nil
	case *conns.Conn:
		heard, _ = watched.Begin(on.Conn.Conn().PgConn())
	case *pgxpool.Conn:
		heard, _ = watched.Begin(on.Conn().PgConn())
	case *pgx.Conn:
		heard, _ = watched.Begin(on.PgConn())
	}
	return db, heard, func() {}, nil
}

// leaveStandby is [conns.LeaveStandby] that also accepts handles that package pawl makes of
// database/sql.
func leaveStandby(on any, err error) {
	if of, is := on.(interface{ Handle() pawl.Queryer }); is {
		on = of.Handle()
	}
	conns.LeaveStandby(on, err)
}

// checkReplicated returns an error if the COMMIT of a single statement stopped waiting for its
// standby.
func checkReplicated(op string, heard *watched.Statement) error {
	if !heard.Cancelled() {
		return nil
	}
	return &pawl.Error{Op: op, Code: pawl.CodeCommitUnknown, Err: errors.New("the server stopped waiting for its synchronous standby")}
}

// A Step queues one call, to be sent together with others.
type Step func(*pgx.Batch)

// step queues a statement that returns one row, which is scanned into into. Its error becomes the
// batch's.
func step(op, sql string, args []any, into ...any) Step {
	return func(b *pgx.Batch) {
		b.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return pawl.Wrap(op, row.Scan(into...)) })
	}
}

// steps queues a statement that returns any number of rows, which into receives.
func steps[T any](op, sql string, args []any, read pgx.RowToFunc[T], into func([]T)) Step {
	return func(b *pgx.Batch) {
		b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
			all, err := pgx.CollectRows(rows, read)
			if err == nil && into != nil {
				into(all)
			}
			return pawl.Wrap(op, err)
		})
	}
}

// many runs a statement that returns any number of rows.
func many[T any](ctx context.Context, db DB, op, sql string, args []any, read pgx.RowToFunc[T]) ([]T, error) {
	return collected(ctx, db, op, sql, args, func(rows pgx.Rows) ([]T, error) { return pgx.CollectRows(rows, read) })
}

// collected is many with a function that reads all rows.
func collected[T any](ctx context.Context, on DB, op, sql string, args []any, read func(pgx.Rows) ([]T, error)) ([]T, error) {
	db, heard, release, err := listened(ctx, on)
	if err != nil {
		return nil, pawl.Wrap(op, err)
	}
	defer release()
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		leaveStandby(on, err)
		return nil, pawl.Wrap(op, err)
	}
	all, err := read(rows)
	if err != nil {
		leaveStandby(on, err)
		return all, pawl.Wrap(op, err)
	}
	if err := checkReplicated(op, heard); err != nil {
		return nil, err
	}
	return all, nil
}
