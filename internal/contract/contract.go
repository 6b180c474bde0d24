// Package contract calls the SQL functions of schema pawl_v1: one Go function per SQL function, columns named, errors
// turned into pawl.Error. It holds no logic; the rows packages give these calls their meaning.
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

// DB is where a call is sent.
type DB = pawl.DB

// Batcher sends several statements as one transaction in one round trip; a *pgxpool.Pool does.
type Batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Options is the trailing jsonb of a function. Absent members take the function's own defaults.
type Options map[string]any

// set adds a member unless its value is zero, so that the function's default holds.
func set[T comparable](o Options, name string, value T) {
	var zero T
	if value != zero {
		o[name] = value
	}
}

// given is nil for a zero value, which an array then carries as null.
func given[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	there := value // the absent one stays off the heap
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

// exact is text for what must arrive as it is: JSON replaces octets that are no UTF-8, so two keys could become one. With such a
// member exact is no UTF-8 either, and PostgreSQL refuses it (22021) as it refuses such an argument.
func (o Options) exact() string {
	if !allUTF8(reflect.ValueOf(o)) {
		return "\xff"
	}
	return o.text()
}

// allUTF8 looks at the texts in maps, slices and pointers, which options and headers are made of.
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

// maxFailure is how many characters of an error are kept.
const maxFailure = 4000

// FailureOf describes err in at most 4,000 characters, without what jsonb cannot hold.
func FailureOf(err error) Failure {
	return Failure{Error: text.Characters(err.Error(), maxFailure), Code: text.Characters(string(pawl.CodeOf(err)), maxFailure)}
}

// column is one field of some rows: a function that takes many rows takes an array a field.
func column[R, T any](rows []R, field func(R) T) []T {
	values := make([]T, len(rows))
	for i, r := range rows {
		values[i] = field(r)
	}
	return values
}

// sparse is column of a field that is nil where it is absent; nil, an absent array, if it is absent everywhere.
func sparse[R, T any](rows []R, field func(R) *T) []*T {
	if !slices.ContainsFunc(rows, func(r R) bool { return field(r) != nil }) {
		return nil
	}
	return column(rows, field)
}

// numbers and words are arrays, read from pgx and from database/sql.
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

// octets makes an absent payload an empty one: pgx sends a nil slice as NULL.
func octets(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// scanDetail reads a detail the way database/sql needs it; pgx uses it too.
func scanDetail(detail, into any) error {
	switch text := detail.(type) {
	case nil:
		return nil
	case []byte:
		return json.Unmarshal(text, into)
	case string:
		if text == "{}" { // as a rule
			return nil
		}
		return json.Unmarshal([]byte(text), into)
	}
	return fmt.Errorf("a detail is %T", detail)
}

// one runs a statement that answers exactly one row. On a pool or connection it is a transaction of its own, whose end is listened
// to as that of any COMMIT.
func one(ctx context.Context, on DB, op, sql string, args []any, into ...any) error {
	return scanned(ctx, on, op, sql, args, func(row pgx.Row) error { return row.Scan(into...) })
}

// scanned is one for a row that scan reads.
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
	return known(op, heard)
}

// listened returns where a statement is sent that may be a transaction of its own, and what is heard at its end.
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

// leaveStandby is [conns.LeaveStandby], also for what package pawl makes of a database/sql handle.
func leaveStandby(on any, err error) {
	if of, is := on.(interface{ Handle() pawl.Queryer }); is {
		on = of.Handle()
	}
	conns.LeaveStandby(on, err)
}

// known is an error if the end of a statement that was a transaction of its own stopped waiting for its standby.
func known(op string, heard *watched.Statement) error {
	if !heard.Cancelled() {
		return nil
	}
	return &pawl.Error{Op: op, Code: pawl.CodeCommitUnknown, Err: errors.New("the server stopped waiting for its synchronous standby")}
}

// A Step queues one call, to be sent together with others.
type Step func(*pgx.Batch)

// step queues a statement that answers one row, which is read into into. Its error is that of the batch.
func step(op, sql string, args []any, into ...any) Step {
	return func(b *pgx.Batch) {
		b.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return pawl.Wrap(op, row.Scan(into...)) })
	}
}

// steps queues a statement that answers any number of rows, which into receives.
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

// many runs a statement that answers any number of rows.
func many[T any](ctx context.Context, db DB, op, sql string, args []any, read pgx.RowToFunc[T]) ([]T, error) {
	return collected(ctx, db, op, sql, args, func(rows pgx.Rows) ([]T, error) { return pgx.CollectRows(rows, read) })
}

// collected is many for a statement whose rows are read together.
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
	if err := known(op, heard); err != nil {
		return nil, err
	}
	return all, nil
}
