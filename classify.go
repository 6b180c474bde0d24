package pawl

import (
	"errors"
	"slices"
	"strings"
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

// classes is looked through from the top; a code of two or three characters stands for all that begin with it. The same table
// stands in docs/guides/choose.md.
var classes = []Class{
	{"40001", RetryYes, "pawl", RedoTransaction, "lost a race under a stricter isolation level"},
	{"40P01", RetryYes, "pawl", RedoTransaction, "deadlock"},
	{"23505", RetryDepends, "caller", RedoClaim, "unique: somebody has done it, or the data is wrong"},
	{"23514", RetryNo, "nobody", RedoNothing, "CHECK"},
	{"23", RetryDepends, "caller", RedoRequest, "other constraints: a parent row may come yet"},
	{"22", RetryNo, "nobody", RedoNothing, "bad data"},
	{"55P03", RetryYes, "caller", RedoRequest, "a lock was not had in time"},
	{"57014", RetryDepends, "caller", RedoClaim, "cancelled, or statement_timeout"},
	{"08007", RetryDepends, "pawl", RedoClaim, "COMMIT without an answer"},
	{"08", RetryYes, "caller", RedoRequest, "no connection; at COMMIT it is 08007"},
	{"57P0", RetryYes, "caller", RedoRequest, "the server stops or starts; at COMMIT it is 08007"},
	{"53300", RetryYes, "caller", RedoRequest, "too many connections"},
	{"53100", RetryYes, "caller", RedoRequest, "the disk is full: the database is away"},
	{"25006", RetryYes, "caller", RedoRequest, "read-only, as a standby is: the database is away"},
	{"25P02", RetryNo, "nobody", RedoNothing, "a failed transaction was carried on"},
	{"P4029", RetryYes, "caller", RedoRequest, "in progress"},
	{"P4020", RetryNo, "nobody", RedoNothing, "a newer attempt owns it"},
	{"P4010", RetryNo, "nobody", RedoNothing, "the same"},
	{"P4011", RetryNo, "nobody", RedoNothing, "the same"},
	{"P4031", RetryNo, "operator", RedoNothing, "nobody knows whether it took effect"},
	{"P4032", RetryYes, "pawl", RedoRequest, "the handler's transaction was lost, and the server answers others: charged"},
	{"P4098", RetryNo, "operator", RedoNothing, "the schema does not fit"},
	{"P4099", RetryNo, "operator", RedoNothing, "a newer state"},
	{"P4040", RetryNo, "nobody", RedoNothing, "the row says that it was handled: acknowledge"},
	{"P4041", RetryNo, "caller", RedoNothing, "the row is not there: the message stays"},
	{"P4042", RetryNo, "pawl", RedoNothing, "the row holds the error, and is driven again: acknowledge"},
	{"P4051", RetryNo, "operator", RedoNothing, "older than what is remembered: nobody knows whether it took effect"},
	{"P40", RetryNo, "caller", RedoNothing, "the request itself: scope, key, payload, argument; failed for good"},
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
	code := CodeOf(err)
	switch {
	case err == nil:
		return Class{"", RetryNo, "nobody", RedoNothing, "no error"}
	case code == "":
		return Class{"", RetryYes, "caller", RedoRequest, "the handler's own"}
	}
	return classOf(code)
}

// classOf looks a code up in the table.
func classOf(code Code) Class {
	for _, c := range classes {
		if strings.HasPrefix(string(code), string(c.Code)) {
			return c
		}
	}
	return Class{code, RetryNo, "nobody", RedoNothing, "the statement itself, or an error that this version does not know"}
}
