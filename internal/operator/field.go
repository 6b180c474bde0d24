package operator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Field is a value that a verb takes: a parameter of a form, and an argument or a flag of a
// command.
type Field struct {
	Name string // form parameter
	// argument name, such as "QUEUE"; for a choice: what is chosen; with Flag: the flag's
	// placeholder, and the flag is required
	Arg      string
	Flag     string   // flag name; empty: no flag
	Label    string   // description of the value
	Options  []string // allowed values; empty: any
	Type     Type
	None     bool // "none", or "never" for a time, stands for no value
	Optional bool // a form may omit this seen value
	FlagOnly bool // not in forms
}

// A Type is the type of a field's values. The empty Type is text.
type Type string

// The types other than text.
const (
	Number Type = "int"
	ID     Type = "id" // a number above zero
	Time   Type = "time"
)

// Want describes the allowed values; empty: any text.
func (f Field) Want() string {
	switch n := len(f.Options); {
	case n > 0:
		return strings.Join(f.Options[:n-1], ", ") + " or " + f.Options[n-1]
	case f.Type == Number && f.None:
		return "a whole number or none"
	case f.Type == Number:
		return "a whole number"
	case f.Type == ID:
		return "a whole number above zero"
	case f.Type == Time:
		return "a time (RFC 3339) or never"
	}
	return ""
}

// Fits reports whether the field accepts the value.
func (f Field) Fits(value string) bool {
	if f.None && (value == "none" || value == "never") {
		return true
	}
	switch f.Type {
	case Time:
		_, err := time.Parse(time.RFC3339Nano, value)
		return err == nil
	case Number, ID:
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && (n > 0 || f.Type == Number)
	}
	return len(f.Options) == 0 || slices.Contains(f.Options, value)
}

// A BadValue is the error for a value that does not fit its field.
type BadValue struct {
	Field       Field
	Value, Want string
}

func (b *BadValue) Error() string {
	return fmt.Sprintf("%s is %q: it must be %s", b.Field.Name, b.Value, b.Want)
}

// Values returns the value of a field by name, or "".
type Values func(name string) string

// number returns the value of a numeric field, or 0 if there is none.
func (p Values) number(name string) int64 {
	n, _ := strconv.ParseInt(p(name), 10, 64)
	return n
}

// seen returns the number that the operator saw, or nil for any.
func (p Values) seen(name string) *int64 {
	if p(name) == "" {
		return nil
	}
	n := p.number(name)
	return &n
}

// when returns the time that the operator saw, zero for none, or nil for any.
func (p Values) when(name string) *time.Time {
	if p(name) == "" {
		return nil
	}
	at, _ := time.Parse(time.RFC3339Nano, p(name))
	return &at
}

// Usage returns the placeholder of the field in a command's usage.
func (f Field) Usage() string {
	if len(f.Options) > 0 {
		return strings.Join(f.Options, "|")
	}
	return f.Arg
}
