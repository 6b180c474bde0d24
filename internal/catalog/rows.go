package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A column is one column of a relation and the struct field that receives it.
type column struct {
	name  string
	index []int
}

// A shape lists the columns of a struct: its fields by their json tags, which are column names too.
// Tag col names another column. Tag col "-" means none, and "get" a column that is only read for a
// single row.
type shape struct{ list, get []column }

var shapes sync.Map // of reflect.Type to shape

func shapeOf[T any]() shape {
	t := reflect.TypeFor[T]()
	if s, known := shapes.Load(t); known {
		return s.(shape)
	}
	var s shape
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		col := f.Tag.Get("col")
		if f.Anonymous || col == "-" || name == "" || name == "-" && col == "" {
			continue
		}
		only := col == "get"
		if col != "" && !only {
			name = col
		}
		c := column{name, f.Index}
		s.get = append(s.get, c)
		if !only {
			s.list = append(s.list, c)
		}
	}
	shapes.Store(t, s)
	return s
}

// selected returns the select list of columns of relation r.
func selected(columns []column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = "r." + c.name
		if c.name == "read_at" {
			names[i] = "clock_timestamp()"
		}
	}
	return strings.Join(names, ", ")
}

// lookRows reads rows of r, which from names, without the columns for single rows.
func lookRows[T any](ctx context.Context, db DB, op, from string, args ...any) ([]T, error) {
	return lookColumns[T](ctx, db, op, shapeOf[T]().list, from, args)
}

// lookWhole reads rows of r with all columns.
func lookWhole[T any](ctx context.Context, db DB, op, from string, args ...any) ([]T, error) {
	return lookColumns[T](ctx, db, op, shapeOf[T]().get, from, args)
}

func lookColumns[T any](ctx context.Context, db DB, op string, columns []column, from string, args []any) ([]T, error) {
	return Look(ctx, db, op, "select "+selected(columns)+"\n  from "+from, args, reads[T](columns))
}

// reads returns a function that makes a struct of a row. A null leaves the field zero; times are
// UTC.
func reads[T any](columns []column) pgx.RowToFunc[T] {
	return func(row pgx.CollectableRow) (value T, err error) {
		v := reflect.ValueOf(&value).Elem()
		into, after := make([]any, len(columns)), make([]func() error, len(columns))
		for i, c := range columns {
			into[i], after[i] = receiver(v.FieldByIndex(c.index))
		}
		if err := row.Scan(into...); err != nil {
			return value, err
		}
		for i, set := range after {
			if err := set(); err != nil {
				return value, fmt.Errorf("column %s: %w", columns[i].name, err)
			}
		}
		return value, nil
	}
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	octetsType   = reflect.TypeFor[[]byte]()
)

// receiver returns the target to scan a column into, and a function that then sets the field. It
// works with pgx and with database/sql.
func receiver(field reflect.Value) (into any, set func() error) {
	nothing := func() error { return nil }
	switch t := field.Type(); {
	case t == octetsType:
		return field.Addr().Interface(), nothing
	case t == durationType: // in milliseconds
		ms := new(*int64)
		return ms, func() error {
			if *ms != nil {
				field.SetInt(**ms * int64(time.Millisecond))
			}
			return nil
		}
	case t.Kind() == reflect.Map, t.Kind() == reflect.Slice:
		return &fromJSON{into: field.Addr().Interface()}, nothing
	case t.Kind() == reflect.Pointer:
		return field.Addr().Interface(), nothing
	}
	p := reflect.New(reflect.PointerTo(field.Type()))
	return p.Interface(), func() error {
		if p.Elem().IsNil() {
			return nil
		}
		field.Set(p.Elem().Elem())
		if field.Type() == timeType {
			field.Set(reflect.ValueOf(field.Interface().(time.Time).UTC()))
		}
		return nil
	}
}

// fromJSON receives a jsonb column.
type fromJSON struct{ into any }

// Scan implements sql.Scanner.
func (j *fromJSON) Scan(value any) error {
	switch text := value.(type) {
	case nil:
		return nil
	case []byte:
		return json.Unmarshal(text, j.into)
	case string:
		return json.Unmarshal([]byte(text), j.into)
	}
	return fmt.Errorf("a JSON column is %T", value)
}
