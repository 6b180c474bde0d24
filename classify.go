package pawl

import (
	"errors"
	"slices"

	"github.com/pawl-go/pawl/internal/verdict"
)

// A Class says what to do about an error: whether the same request may succeed later, who tries again, and how much of it.
// It is about transactions; what an error means to a handler's own rules, the handler knows.
type Class struct {
	Code  Code   // what was recognised: a SQLSTATE, or a class of them, "22"; "" for an error without one
	Retry Retry  // whether
	By    string // who: "pawl" (it has done so already), "caller", "nobody", "operator"
	Redo  Redo   // what
	Why   string // what the code stands for
}

// Retry says whether trying again helps.
type Retry string

// No: the same request fails the same way. Yes: it may succeed. Depends: ask first what became of it, or look at the cause.
const (
	RetryNo      Retry = "no"
	RetryYes     Retry = "yes"
	RetryDepends Retry = "depends"
)

// Redo says what to do again.
type Redo string

// The whole transaction from its start, the same request, or a claim of the same key, which shows what became of the request.
const (
	RedoTransaction Redo = "the whole transaction"
	RedoRequest     Redo = "the same request"
	RedoClaim       Redo = "a claim of the same key"
	RedoNothing     Redo = "nothing"
)

// classes is the part of the table of package verdict that a caller needs. It stands in
// docs/guides/choose.md; docs/reference/verdicts.md has the whole.
var classes = func() (all []Class) {
	for _, row := range verdict.Table {
		all = append(all, classOf(row))
	}
	return all
}()

func classOf(r verdict.Row) Class {
	return Class{Code(r.Code), Retry(r.Retry), r.By, Redo(r.Redo), r.Why}
}

// Classes returns the whole table, in the order in which [Classify] looks through it.
func Classes() []Class { return slices.Clone(classes) }

// Classify reads what can be done about err. An error that a handler has wrapped in [Final] is not tried again; one without a
// code is the handler's own: a plain error may be tried again by whoever asked.
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
