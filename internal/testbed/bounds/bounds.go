// Package bounds tests a configuration at the bounds of each number and duration, and just outside
// them.
package bounds

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// A Setting is a number or a duration of a configuration, with the least and the largest value that
// its documentation allows.
type Setting struct {
	Name        string // of the field
	Least, Most any    // of the field's type
}

// Complete fails the test if an exported number or duration of the configuration C has no setting,
// or a setting has no such field.
func Complete[C any](t testing.TB, settings ...Setting) {
	t.Helper()
	known := map[string]bool{}
	for _, s := range settings {
		known[s.Name] = true
	}
	of := reflect.TypeFor[C]()
	for _, f := range reflect.VisibleFields(of) {
		if !f.IsExported() || !numeric(f.Type.Kind()) {
			continue
		}
		if !known[f.Name] {
			t.Errorf("%v.%s has no bounds in this test: add a Setting with its least and its largest value", of, f.Name)
		}
		delete(known, f.Name)
	}
	for name := range known {
		t.Errorf("%v has no number or duration %s", of, name)
	}
}

func numeric(k reflect.Kind) bool {
	return k >= reflect.Int && k <= reflect.Float64
}

// Refused fails the test if open accepts a value just outside the bounds of a setting, or refuses
// it without the setting's name and the value. A value of 0 means the default, so the value below
// a least of 1 is -1.
func Refused[C any](t *testing.T, open func(C) error, settings ...Setting) {
	t.Helper()
	for _, s := range settings {
		for _, outside := range s.outside() {
			t.Run(fmt.Sprintf("%s %v", s.Name, outside), func(t *testing.T) {
				var c C
				s.set(&c, outside)
				want := fmt.Sprintf("%s is %v", s.Name, outside)
				if err := open(c); !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), want) {
					t.Errorf("got the error %v, want one that contains %q", err, want)
				}
			})
		}
	}
}

func (s Setting) outside() (values []any) {
	least, most := reflect.ValueOf(s.Least), reflect.ValueOf(s.Most)
	below := least.Int() - 1
	if below == 0 {
		below = -1
	}
	values = append(values, reflect.ValueOf(below).Convert(least.Type()).Interface())
	if most.Int() < math.MaxInt64 {
		values = append(values, reflect.ValueOf(most.Int()+1).Convert(most.Type()).Interface())
	}
	return values
}

func (s Setting) set(c, value any) {
	reflect.ValueOf(c).Elem().FieldByName(s.Name).Set(reflect.ValueOf(value))
}

// Each returns copies of base with each setting at its least and at its largest value, then with
// all at their least and with all at their largest. Each comes with its name.
func Each[C any](base C, settings ...Setting) iter.Seq2[string, C] {
	return func(yield func(string, C) bool) {
		least, most := base, base
		for _, s := range settings {
			for _, value := range []any{s.Least, s.Most} {
				one := base
				s.set(&one, value)
				if !yield(fmt.Sprintf("%s %v", s.Name, value), one) {
					return
				}
			}
			s.set(&least, s.Least)
			s.set(&most, s.Most)
		}
		if len(settings) > 1 && yield("all least", least) {
			yield("all largest", most)
		}
	}
}

// LongWait fails the test unless a Receive with the largest Wait returns the message that send
// sends meanwhile. It also fails if Receive does not end with its context.
func LongWait(t *testing.T, s pawl.Source, send func()) {
	t.Helper()
	received, failed := make(chan pawl.Delivery, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for {
			ds, err := s.Receive(ctx, 1)
			if err != nil {
				failed <- err
				return
			}
			for _, d := range ds {
				received <- d
			}
		}
	}()
	send()
	_ = s.Release(t.Context(), time.Hour, patience.Receive(t, "the message", received))
	cancel()
	if err := patience.Receive(t, "the end of Receive", failed); !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the context came as %v", err)
	}
}
