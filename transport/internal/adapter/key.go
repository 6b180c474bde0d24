package adapter

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/pawl-go/pawl/transport/internal/jsonptr"
)

// First uses the first key that one of several KeyFroms finds in a message of type M.
type First[M any, F interface{ KeyOf(m M) string }] []F

// KeyOf returns the first key that is not empty.
func (k First[M, F]) KeyOf(m M) string {
	for _, from := range k {
		if key := from.KeyOf(m); key != "" {
			return key
		}
	}
	return ""
}

func (k First[M, F]) check() error {
	if len(k) == 0 {
		return errors.New("KeyFirst needs at least one")
	}
	for _, from := range k {
		if any(from) == nil {
			return errors.New("KeyFirst was given nil")
		}
		if err := CheckKey(from); err != nil {
			return err
		}
	}
	return nil
}

// Named reads the key from a header or attribute.
type Named[M any] struct {
	By   string // the function that created it, for error messages
	Name string
	Of   func(m M, name string) string
}

// KeyOf returns the value of that header or attribute.
func (k Named[M]) KeyOf(m M) string { return k.Of(m, k.Name) }

func (k Named[M]) check() error {
	if k.Name == "" {
		return errors.New(k.By + " needs a name")
	}
	return nil
}

// JSON reads the key from a JSON document, at an RFC 6901 pointer.
type JSON[M any] struct {
	Pointer string
	Body    func(m M) []byte
}

// KeyOf returns the text or the number at the pointer.
func (k JSON[M]) KeyOf(m M) string {
	key, _ := jsonptr.TextAt(k.Body(m), k.Pointer)
	return key
}

func (k JSON[M]) check() error {
	if err := jsonptr.Check(k.Pointer); err != nil {
		return fmt.Errorf("KeyJSON: %w", err)
	}
	return nil
}

// CheckKey returns an error if from can never find a key: an invalid value of this package, or a
// nil KeyFunc. Other user types are accepted.
func CheckKey(from any) error {
	if v := reflect.ValueOf(from); v.Kind() == reflect.Func && v.IsNil() {
		return errors.New("KeyFunc is nil")
	}
	if ours, is := from.(interface{ check() error }); is {
		return ours.check()
	}
	return nil
}
