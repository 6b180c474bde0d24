package callback_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/callback"
)

// An unreadable error panics in its Error method.
type unreadable struct{}

func (unreadable) Error() string { panic("no text") }

var errUsual = errors.New("as usual")

// A function that does not return becomes an error that names the function and the place.
func TestDo_AbruptEnds(t *testing.T) {
	t.Parallel()
	var none func() error
	for name, c := range map[string]struct {
		fn   func() error
		want string
	}{
		"panic":               {func() error { panic("boom") }, "Config.Key: panic: boom, at github.com/pawl-go/pawl/internal/callback_test."},
		"panic with an error": {func() error { panic(context.Canceled) }, "panic: context canceled, at "},
		"panic with nil":      {func() error { panic(nil) }, "panic: panic called with nil argument"}, //nolint:govet // that is the case
		"exit":                {func() error { runtime.Goexit(); return nil }, "Config.Key: the function exited its goroutine"},
		"nil":                 {func() error { return none() }, "panic: runtime error: invalid memory address or nil pointer dereference, at "},
		"unreadable":          {func() error { return unreadable{} }, "panic: no text, at "},
	} {
		err := callback.Do("Config.Key", c.fn)
		if err == nil || !strings.Contains(err.Error(), c.want) || !callback.Panicked(err) {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, context.Canceled) {
			t.Errorf("%s: a panic counts as a cancellation", name)
		}
		if stack := callback.StackOf(err); name != "exit" && !strings.Contains(stack, "callback_test.go") {
			t.Errorf("%s: the stack does not name this file:\n%s", name, stack)
		}
	}
}

// A returned error is passed through unchanged and does not count as a panic.
func TestDo_Errors(t *testing.T) {
	t.Parallel()
	if err := callback.Do("", func() error { return errUsual }); err != errUsual || callback.Panicked(err) || callback.StackOf(err) != "" { //nolint:errorlint // the same
		t.Error(err)
	}
	if err := callback.Do("", func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// Get returns the value, or the error of a panic and the zero value.
func TestGet(t *testing.T) {
	t.Parallel()
	if v, err := callback.Get("", func() int { return 7 }); v != 7 || err != nil {
		t.Error(v, err)
	}
	if v, err := callback.Get("Queue.Admit", func() int { panic("boom") }); v != 0 || err == nil {
		t.Error(v, err)
	}
}

func BenchmarkDo(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = callback.Do("", func() error { return nil })
	}
}
