// Package payload decodes payloads.
package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
)

// ErrNull refuses JSON null for a type that cannot be nil. encoding/json would leave the zero
// value: an order without an id and an amount.
var ErrNull = errors.New("it cannot be null")

// Decode decodes JSON into a value. For null it returns [ErrNull], unless T can be nil or
// implements json.Unmarshaler.
func Decode[T any](octets []byte, into *T) error {
	err := json.Unmarshal(octets, into)
	if err == nil && bytes.Equal(bytes.TrimSpace(octets), []byte("null")) && !takesNull(into) {
		return ErrNull
	}
	return err
}

func takesNull[T any](into *T) bool {
	if _, itself := any(into).(json.Unmarshaler); itself {
		return true
	}
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return true
	}
	return false
}
