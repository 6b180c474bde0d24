// Package verdict decides what a database error means. An outage is charged to no attempt, and a
// failure is charged to this attempt or message. After a lost race, the whole transaction runs
// again. One table decides, by SQLSTATE and by whose statement failed.
package verdict

import "strings"

// A Verdict is the meaning of an error.
type Verdict string

// The verdicts. [Ask], [Busy] and [Unknown] need another query to decide.
const (
	// Outage: the database is unavailable. Nothing is charged, and a consumer stops receiving.
	Outage Verdict = "outage"
	// Ask: the error looks like an outage. If the same server accepts writes on another connection,
	// it is the attempt's failure. Otherwise it is an outage, of which an attempt may have three in
	// a row.
	Ask Verdict = "outage, or failure"
	// Failure: it is charged as one attempt.
	Failure Verdict = "failure"
	// Final: it is charged, and no retry can help.
	Final Verdict = "final failure"
	// Race: another transaction won. The whole transaction runs again, 8 tries in all, uncharged.
	Race Verdict = "lost race"
	// Busy: another transaction has locked the row. Nothing is charged. If the whole table is
	// locked, it is an outage.
	Busy Verdict = "busy"
	// Unknown: the transaction may have committed. Read the row to find out.
	Unknown Verdict = "unknown"
	// Reply: the error is the reply to the call, and the caller knows what it means.
	Reply Verdict = "reply"
)

// A Row gives the meaning of one SQLSTATE, or of all that begin with Code.
type Row struct {
	Code string
	// Own applies to a statement of Pawl's without user code, such as a claim or a heartbeat.
	Own Verdict
	// Handler applies to an error of user code whose transaction still exists, and to its COMMIT.
	Handler Verdict
	// Lost applies to an error of user code whose transaction is gone.
	Lost Verdict
	// Retry, By and Redo advise a caller; see pawl.Class.
	Retry, By, Redo string
	Why             string
}

// Of returns the row of a code: [Other] if the table lacks it, [NoCode] if the code is empty.
func Of[C ~string](code C) Row {
	if code == "" {
		return NoCode
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

// IsBusy reports whether a statement of Pawl's did not get a row that another transaction has
// locked.
func IsBusy[C ~string](code C) bool { return Of(code).Own == Busy }

// IsRace reports whether a transaction lost a race and may succeed if it runs again.
func IsRace[C ~string](code C) bool { return Of(code).Own == Race }

// IsOutage reports whether a connection that ends with the code may have lost its server.
func IsOutage[C ~string](code C) bool {
	lost := Of(code).Lost
	return code != "" && (lost == Outage || lost == Ask)
}

// IsReadOnly reports whether a statement was refused because its transaction is read-only.
func IsReadOnly[C ~string](code C) bool { return code == ReadOnly }

// Codes that Pawl's own errors carry or that code compares by name.
const (
	LockNotAvailable  = "55P03"
	ConnectionFailure = "08006"
	FailedTransaction = "25P02"
	ReadOnly          = "25006"
	TooManyConns      = "53300"
)
