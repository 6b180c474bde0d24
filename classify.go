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
	Redo  string // what: "the whole transaction", "the same request", "a claim of the same key", "nothing"
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

// What is done again.
const (
	redoTransaction = "the whole transaction"
	redoRequest     = "the same request"
	redoClaim       = "a claim of the same key"
	redoNothing     = "nothing"
)

// classes is looked through from the top; a code of two or three characters stands for all that begin with it. The same table
// stands in docs/guides/choose.md.
var classes = []Class{
	{"40001", RetryYes, "pawl", redoTransaction, "lost a race under a stricter isolation level"},
	{"40P01", RetryYes, "pawl", redoTransaction, "deadlock"},
	{"23505", RetryDepends, "caller", redoClaim, "unique: somebody has done it, or the data is wrong"},
	{"23514", RetryNo, "nobody", redoNothing, "CHECK"},
	{"23", RetryDepends, "caller", redoRequest, "other constraints: a parent row may come yet"},
	{"22", RetryNo, "nobody", redoNothing, "bad data"},
	{"55P03", RetryYes, "caller", redoRequest, "a lock was not had in time"},
	{"57014", RetryDepends, "caller", redoClaim, "cancelled, or statement_timeout"},
	{"08007", RetryDepends, "pawl", redoClaim, "COMMIT without an answer"},
	{"08", RetryYes, "caller", redoRequest, "no connection; at COMMIT it is 08007"},
	{"57P0", RetryYes, "caller", redoRequest, "the server stops or starts; at COMMIT it is 08007"},
	{"53300", RetryYes, "caller", redoRequest, "too many connections"},
	{"53100", RetryYes, "caller", redoRequest, "the disk is full: the database is away"},
	{"25006", RetryYes, "caller", redoRequest, "read-only, as a standby is: the database is away"},
	{"25P02", RetryNo, "nobody", redoNothing, "a failed transaction was carried on"},
	{"P4029", RetryYes, "caller", redoRequest, "in progress"},
	{"P4020", RetryNo, "nobody", redoNothing, "a newer attempt owns it"},
	{"P4010", RetryNo, "nobody", redoNothing, "the same"},
	{"P4011", RetryNo, "nobody", redoNothing, "the same"},
	{"P4031", RetryNo, "operator", redoNothing, "nobody knows whether it took effect"},
	{"P4098", RetryNo, "operator", redoNothing, "the schema does not fit"},
	{"P4099", RetryNo, "operator", redoNothing, "a newer state"},
	{"P4040", RetryNo, "nobody", redoNothing, "the row says that it was handled: acknowledge"},
	{"P4041", RetryNo, "caller", redoNothing, "the row is not there: the message stays"},
	{"P4042", RetryNo, "pawl", redoNothing, "the row holds the error, and is driven again: acknowledge"},
	{"P4051", RetryNo, "operator", redoNothing, "older than what is remembered: nobody knows whether it took effect"},
	{"P40", RetryNo, "caller", redoNothing, "the request itself: scope, key, payload, argument; failed for good"},
}

// Classes returns the whole table, in the order in which [Classify] looks through it.
func Classes() []Class { return slices.Clone(classes) }

// Classify reads what can be done about err. An error that a handler has wrapped in [Final] is not tried again; one without a
// code is the handler's own: a plain error may be tried again by whoever asked.
func Classify(err error) Class {
	var final *finalError
	if errors.As(err, &final) {
		return Class{CodeOf(err), RetryNo, "nobody", redoNothing, "the handler says that no retry can help"}
	}
	code := CodeOf(err)
	for _, c := range classes {
		if strings.HasPrefix(string(code), string(c.Code)) {
			return c
		}
	}
	switch {
	case err == nil:
		return Class{"", RetryNo, "nobody", redoNothing, "no error"}
	case code == "":
		return Class{"", RetryYes, "caller", redoRequest, "the handler's own"}
	}
	return Class{code, RetryNo, "nobody", redoNothing, "the statement itself, or what nobody has thought of"}
}
