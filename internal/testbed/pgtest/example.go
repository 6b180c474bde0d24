package pgtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// An Example is a testing.TB for example functions. Call End when the example is done.
type Example struct {
	testing.TB
	cleanups []func()
}

// These methods are the part of testing.TB that fixtures use.

func (e *Example) Helper()                           {}
func (e *Example) Failed() bool                      { return false }
func (e *Example) Context() context.Context          { return context.Background() }
func (e *Example) Cleanup(do func())                 { e.cleanups = append(e.cleanups, do) }
func (e *Example) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (e *Example) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (e *Example) Logf(string, ...any)               {}

// End runs the cleanup functions.
func (e *Example) End() {
	for _, do := range slices.Backward(e.cleanups) {
		do()
	}
}
