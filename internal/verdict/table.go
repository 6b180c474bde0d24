package verdict

// The values of Retry, By and Redo; see pawl.Class.
const (
	no, yes, depends = "no", "yes", "depends"

	transaction = "the whole transaction"
	request     = "the same request"
	claim       = "a claim of the same key"
	nothing     = "nothing"
)

// Table is searched from the top; the first matching row applies.
var Table = []Row{
	// code, own, handler, lost, again?, who, what, why
	{"40001", Race, Race, Race, yes, "pawl", transaction, "lost a race under a stricter isolation level"},
	{"40P01", Race, Race, Race, yes, "pawl", transaction, "deadlock"},
	{"23505", Outage, Failure, Failure, depends, "caller", claim, "unique violation: another transaction has done it, or the data is wrong"},
	{"23514", Failure, Final, Failure, no, "nobody", nothing, "CHECK"},
	{"23", Outage, Failure, Failure, depends, "caller", request, "other constraints: a parent row may still arrive"},
	{"22", Failure, Final, Failure, no, "nobody", nothing, "bad data"},
	{"55P03", Busy, Failure, Failure, yes, "caller", request, "a lock was not acquired in time"},
	{"57014", Outage, Failure, Failure, depends, "caller", claim, "cancelled, or statement_timeout"},
	{"08007", Unknown, Unknown, Ask, depends, "pawl", claim, "COMMIT without an answer"},
	{"08", Outage, Ask, Ask, yes, "caller", request, "no connection; at COMMIT it is 08007"},
	{"57P02", Outage, Failure, Outage, yes, "caller", request, "another session has crashed, and the server restarts; at COMMIT it is 08007"},
	{"57P0", Outage, Ask, Ask, yes, "caller", request, "the server stops or starts, or the session was ended; at COMMIT it is 08007"},
	{"53300", Outage, Failure, Outage, yes, "caller", request, "too many connections"},
	{"53100", Outage, Failure, Outage, yes, "caller", request, "the disk is full: the database is unavailable"},
	{"53200", Outage, Failure, Failure, depends, "caller", request, "out of memory, or of locks (max_locks_per_transaction)"},
	{"25006", Outage, Ask, Ask, yes, "caller", request, "read-only, as a standby is: the database is unavailable"},
	{"25P02", Outage, Failure, Failure, no, "nobody", nothing, "a statement after a failed one in the same transaction"},
	{"25P03", Outage, Failure, Failure, yes, "caller", request, "idle_in_transaction_session_timeout ended the session"},
	{"25P04", Outage, Failure, Failure, yes, "caller", request, "transaction_timeout ended the session"},
	{"P4029", Reply, Failure, Failure, yes, "caller", request, "in progress"},
	{"P4020", Reply, Failure, Failure, no, "nobody", nothing, "this attempt no longer holds it"},
	{"P4031", Reply, Failure, Failure, no, "operator", nothing, "it is unknown whether it took effect"},
	{"P4032", Reply, Failure, Failure, yes, "pawl", request, "the handler's transaction was lost although the server answers on other connections: charged"},
	{"P4098", Outage, Failure, Failure, no, "operator", nothing, "the schema does not fit"},
	{"P4099", Reply, Failure, Failure, no, "operator", nothing, "a newer state"},
	{"P4040", Reply, Failure, Failure, no, "nobody", nothing, "the row was handled before: acknowledge"},
	{"P4041", Reply, Failure, Failure, no, "caller", nothing, "the row does not exist: a message about it is not acknowledged"},
	{"P4042", Reply, Failure, Failure, no, "pawl", nothing, "the row holds the error, and is retried: acknowledge"},
	{"P4051", Reply, Failure, Failure, no, "operator", nothing, "older than the memory window: it is unknown whether it took effect"},
	{"P4002", Reply, Final, Failure, no, "caller", nothing, "the request itself: its key was used before with another payload"},
	{"P4030", Reply, Final, Failure, no, "caller", nothing, "the request itself: it failed permanently"},
	{"P40", Reply, Failure, Failure, no, "caller", nothing, "the request itself: scope, key, payload, argument"},
}

// Other is the row of a code that the table lacks, such as 42P01 (missing table), 42501 (missing
// privilege) or 0A000. A statement of Pawl's that fails with such a code fails for every message.
var Other = Row{"", Outage, Failure, Failure, no, "nobody", nothing, "the statement itself, or an error that this version does not know"}

// NoCode is the row of an error without a code, which comes from user code.
var NoCode = Row{"", Failure, Failure, Failure, yes, "caller", request, "the handler's own"}
