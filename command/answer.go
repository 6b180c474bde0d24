package command

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/contract"
)

// An Answer is what is stored of a success. A handler of type Once[Answer] sets each part itself. A
// []byte or json.RawMessage becomes Result as it is, any other type becomes Result as JSON.
type Answer struct {
	// Result is the value, stored byte for byte, at most 4 MiB.
	Result []byte
	// RefType and RefID name the created object for queries: "order", "17". At most 255 bytes.
	RefType, RefID string
	// Response is the HTTP response, if there was one.
	Response *Response
}

// A Response is a stored HTTP response.
type Response struct {
	Status  int                 // 100 to 999
	Headers map[string][]string // only those that a replay may send; at most what fits a row
	Body    []byte              // stored byte for byte, at most 4 MiB
}

// A Referrer names the object that was created. Its RefType and RefID are stored with the answer.
type Referrer interface {
	ResultRef() (refType, refID string)
}

// encode returns the answer that stores value, and value read back from it, which all callers get.
// The marshal methods of T are user code, so panics in them are caught.
func encode[T any](value T) (a Answer, stored T, err error) {
	err = callback.Do("the result", func() (err error) {
		a, stored, err = encoded(value)
		return err
	})
	return a, stored, err
}

func encoded[T any](value T) (Answer, T, error) {
	var a Answer
	switch v := any(value).(type) {
	case Answer:
		a = v
	case []byte:
		a.Result = v
	case json.RawMessage:
		a.Result = v
	default:
		text, err := json.Marshal(value)
		if err != nil {
			return a, value, fmt.Errorf("the result cannot be stored: %w", err)
		}
		a.Result = text
	}
	if r, ok := any(value).(Referrer); ok {
		a.RefType, a.RefID = r.ResultRef()
	}
	stored, err := decoded[T](a)
	return a, stored, err
}

func decode[T any](a Answer) (value T, err error) {
	err = callback.Do("the result", func() (err error) {
		value, err = decoded[T](a)
		return err
	})
	return value, err
}

func decoded[T any](a Answer) (value T, err error) {
	switch v := any(&value).(type) {
	case *Answer:
		*v = a
	case *[]byte:
		*v = bytes.Clone(a.Result)
	case *json.RawMessage:
		*v = bytes.Clone(a.Result)
	default:
		if a.Result == nil {
			return value, nil // settled by hand
		}
		if err := json.Unmarshal(a.Result, &value); err != nil {
			return value, &pawl.Error{Op: "command.decode", Err: fmt.Errorf("the stored result does not decode into %T: %w", value, err),
				Hint: "the type has changed since it was stored; read it as command.Answer"}
		}
	}
	return value, nil
}

func answerOf(r contract.CommandRow) Answer {
	a := Answer{Result: r.Result, RefType: r.RefType, RefID: r.RefID}
	if r.ResponseStatus != 0 {
		a.Response = &Response{Status: r.ResponseStatus, Headers: r.ResponseHeaders, Body: r.ResponseBody}
	}
	return a
}

// stored returns the answer as the contract's argument.
func (a Answer) stored() contract.CommandAnswer {
	s := contract.CommandAnswer{Result: a.Result, RefType: a.RefType, RefID: a.RefID}
	if r := a.Response; r != nil {
		s.ResponseStatus, s.ResponseHeaders, s.ResponseBody = r.Status, r.Headers, r.Body
	}
	return s
}
