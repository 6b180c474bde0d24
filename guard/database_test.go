package guard_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/pawltest"
)

// database gives an example what pawltest.DB gives a test.
func database(schema string) (pool *pgxpool.Pool, drop func()) {
	tb := &example{}
	return pawltest.DB(tb, schema), tb.end
}

// must returns the value or panics.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// An example stands in for a test where there is none.
type example struct {
	testing.TB
	cleanups []func()
}

func (e *example) Helper()                      {}
func (e *example) Failed() bool                 { return false }
func (e *example) Context() context.Context     { return context.Background() }
func (e *example) Cleanup(do func())            { e.cleanups = append(e.cleanups, do) }
func (e *example) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (e *example) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (e *example) Logf(string, ...any)          {}

func (e *example) end() {
	for _, do := range slices.Backward(e.cleanups) {
		do()
	}
}
