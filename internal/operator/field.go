package operator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Field is a value that a verb takes: a parameter of a form, and an argument or a flag of a command.
type Field struct {
	Name     string   // of the form's parameter
	Arg      string   // of the argument: "QUEUE"; of a choice: what is chosen; with Flag: its value in the usage, since the command requires it
	Flag     string   // empty: no flag
	Label    string   // what to give
	Options  []string // empty: anything
	Type     Type
	None     bool // "none", or of a time "never", says that there was none
	Optional bool // a form may leave out that this was seen
	FlagOnly bool // forms do not ask for it
}

// A Type is what the values of a field are. The empty one is text.
type Type string

// The types of fields that are no text.
const (
	Number Type = "int"
	ID     Type = "id" // a number above zero
	Time   Type = "time"
)

// Want says what the values are; empty: any text.
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

// Fits reports whether the field takes the value.
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

// A BadValue is a value that does not fit its field.
type BadValue struct {
	Field       Field
	Value, Want string
}

func (b *BadValue) Error() string {
	return fmt.Sprintf("%s is %q: it must be %s", b.Field.Name, b.Value, b.Want)
}

// Values are what fields were given, by their names; empty: nothing.
type Values func(name string) string

// number is the value of a field that fits, and 0 if there is none.
func (p Values) number(name string) int64 {
	n, _ := strconv.ParseInt(p(name), 10, 64)
	return n
}

// seen is the number that was seen; nil: any.
func (p Values) seen(name string) *int64 {
	if p(name) == "" {
		return nil
	}
	n := p.number(name)
	return &n
}

// when is the time that was seen, zero if there was none; nil: any.
func (p Values) when(name string) *time.Time {
	if p(name) == "" {
		return nil
	}
	at, _ := time.Parse(time.RFC3339Nano, p(name))
	return &at
}

// Usage is what stands for the field in the usage of a command.
func (f Field) Usage() string {
	if len(f.Options) > 0 {
		return strings.Join(f.Options, "|")
	}
	return f.Arg
}
