// Package verdict decides what an error of the database means: an outage, which is charged to
// nobody; the failure of this attempt or message, which is; or a race that was lost, whose
// transaction runs again. The decision is one table, by SQLSTATE and by whose statement failed.
package verdict

import "strings"

// A Verdict is what an error means.
type Verdict string

// The verdicts. What depends on more than the code is asked: see [Ask], [Busy] and [Unknown].
const (
	// Outage: the database is not to be counted on. Nothing is charged, and a consumer stops
	// receiving.
	Outage Verdict = "outage"
	// Ask: it looks like an outage. If the same server takes writes of others on another
	// connection, it is the attempt's failure. Else it is an outage, of which an attempt has three
	// in a row.
	Ask Verdict = "outage, or failure"
	// Failure: it is charged as one attempt.
	Failure Verdict = "failure"
	// Final: it is charged, and no retry can help.
	Final Verdict = "final failure"
	// Race: another transaction won. The whole transaction runs again, at most 8 times, uncharged.
	Race Verdict = "lost race"
	// Busy: another transaction has the row now. Nothing is charged. If the table is locked as a
	// whole, it is an outage.
	Busy Verdict = "busy"
	// Unknown: the transaction may have committed. The row is asked.
	Unknown Verdict = "unknown"
	// Answer: what was asked is answered by the error; its caller knows what that means.
	Answer Verdict = "answer"
)

// A Row says what one SQLSTATE means, or all that begin with the same characters.
type Row struct {
	Code string
	// Own is of a statement of Pawl's, with nothing of the user's in it: a claim, a heartbeat.
	Own Verdict
	// Handler is of what user code returned while its transaction stands, and of its COMMIT.
	Handler Verdict
	// Lost is of what user code returned when its transaction was gone.
	Lost Verdict
	// Retry, By and Redo are advice to a caller: see pawl.Class.
	Retry, By, Redo string
	Why             string
}

// Of returns the row of a code. For one that is not in the table it is [Other], for none [Plain].
func Of[C ~string](code C) Row {
	if code == "" {
		return Plain
	}
	for _, row := range Table {
		if strings.HasPrefix(string(code), row.Code) {
			return row
		}
	}
	other := Other
	other.Code = string(code)
	return other
}

// IsBusy reports whether a statement of Pawl's did not get a row that another transaction has.
func IsBusy[C ~string](code C) bool { return Of(code).Own == Busy }

// IsRace reports whether a transaction failed through another one, and may succeed if it runs
// again.
func IsRace[C ~string](code C) bool { return Of(code).Own == Race }

// IsOutage reports whether a connection that ends with the code may be gone with its server.
func IsOutage[C ~string](code C) bool {
	lost := Of(code).Lost
	return code != "" && (lost == Outage || lost == Ask)
}

// IsReadOnly reports whether a statement was refused because its transaction is read-only.
func IsReadOnly[C ~string](code C) bool { return code == ReadOnly }

// Codes that Pawl's own errors carry, or that one place asks for by name.
const (
	LockNotAvailable  = "55P03"
	ConnectionFailure = "08006"
	FailedTransaction = "25P02"
	ReadOnly          = "25006"
	TooManyConns      = "53300"
)
