package pawl

import (
	"errors"
	"slices"

	"github.com/pawl-go/pawl/internal/verdict"
)

// A Class says what to do about an error: whether a retry may succeed, who retries, and what. It
// covers errors of transactions. Only a handler knows what an error means to its own rules.
type Class struct {
	Code  Code // a SQLSTATE or a SQLSTATE class such as "22"; "" for an error without one
	Retry Retry
	// By is the party that retries: "pawl" (which has retried already), "caller", "operator" or
	// "nobody".
	By   string
	Redo Redo   // what to retry
	Why  string // the meaning of the code
}

// Retry says whether trying again helps.
type Retry string

// RetryNo: the same request fails the same way. RetryYes: it may succeed. RetryDepends: find out
// first whether the request took effect, or look at the cause.
const (
	RetryNo      Retry = "no"
	RetryYes     Retry = "yes"
	RetryDepends Retry = "depends"
)

// Redo says what to do again.
type Redo string

// RedoClaim claims the same key again, which shows whether the request took effect.
const (
	RedoTransaction Redo = "the whole transaction"
	RedoRequest     Redo = "the same request"
	RedoClaim       Redo = "a claim of the same key"
	RedoNothing     Redo = "nothing"
)

// classes is the part of package verdict's table that a caller needs. docs/guides/choose.md shows
// it; docs/reference/verdicts.md shows the whole table.
var classes = func() (all []Class) {
	for _, row := range verdict.Table {
		all = append(all, classOf(row))
	}
	return all
}()

func classOf(r verdict.Row) Class {
	return Class{Code(r.Code), Retry(r.Retry), r.By, Redo(r.Redo), r.Why}
}

// Classes returns the whole table, in the order in which [Classify] searches it.
func Classes() []Class { return slices.Clone(classes) }

// Classify returns the class of err. An error that a handler wrapped in [Final] is not retried. An
// error without a code is the handler's own, and the caller may retry it.
func Classify(err error) Class {
	var final *finalError
	if errors.As(err, &final) {
		return Class{CodeOf(err), RetryNo, "nobody", RedoNothing, "the handler says that no retry can help"}
	}
	if err == nil {
		return Class{"", RetryNo, "nobody", RedoNothing, "no error"}
	}
	return classOf(verdict.Of(CodeOf(err)))
}
