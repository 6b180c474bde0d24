package verdict

// no, yes and the rest are what a caller may do; see pawl.Class.
const (
	no, yes, depends = "no", "yes", "depends"

	transaction = "the whole transaction"
	request     = "the same request"
	claim       = "a claim of the same key"
	nothing     = "nothing"
)

// Table is looked through from the top.
var Table = []Row{
	// code, own, handler, lost, again?, who, what, why
	{"40001", Race, Race, Race, yes, "pawl", transaction, "lost a race under a stricter isolation level"},
	{"40P01", Race, Race, Race, yes, "pawl", transaction, "deadlock"},
	{"23505", Outage, Failure, Failure, depends, "caller", claim, "unique: another transaction has done it, or the data is wrong"},
	{"23514", Failure, Final, Failure, no, "nobody", nothing, "CHECK"},
	{"23", Outage, Failure, Failure, depends, "caller", request, "other constraints: a parent row may come yet"},
	{"22", Failure, Final, Failure, no, "nobody", nothing, "bad data"},
	{"55P03", Busy, Failure, Failure, yes, "caller", request, "a lock was not had in time"},
	{"57014", Outage, Failure, Failure, depends, "caller", claim, "cancelled, or statement_timeout"},
	{"08007", Unknown, Unknown, Ask, depends, "pawl", claim, "COMMIT without an answer"},
	{"08", Outage, Ask, Ask, yes, "caller", request, "no connection; at COMMIT it is 08007"},
	{"57P02", Outage, Failure, Outage, yes, "caller", request, "another session has crashed, and the server restarts; at COMMIT it is 08007"},
	{"57P0", Outage, Ask, Ask, yes, "caller", request, "the server stops or starts, or the session was ended; at COMMIT it is 08007"},
	{"53300", Outage, Failure, Outage, yes, "caller", request, "too many connections"},
	{"53100", Outage, Failure, Outage, yes, "caller", request, "the disk is full: the database is away"},
	{"53200", Outage, Failure, Failure, depends, "caller", request, "out of memory, or of locks (max_locks_per_transaction)"},
	{"25006", Outage, Ask, Ask, yes, "caller", request, "read-only, as a standby is: the database is away"},
	{"25P02", Outage, Failure, Failure, no, "nobody", nothing, "a failed transaction was carried on"},
	{"25P03", Outage, Failure, Failure, yes, "caller", request, "idle_in_transaction_session_timeout ended the session"},
	{"25P04", Outage, Failure, Failure, yes, "caller", request, "transaction_timeout ended the session"},
	{"P4029", Answer, Failure, Failure, yes, "caller", request, "in progress"},
	{"P4020", Answer, Failure, Failure, no, "nobody", nothing, "this attempt no longer holds it"},
	{"P4031", Answer, Failure, Failure, no, "operator", nothing, "it is not known whether it took effect"},
	{"P4032", Answer, Failure, Failure, yes, "pawl", request, "the handler's transaction was lost, and the server answers others: charged"},
	{"P4098", Outage, Failure, Failure, no, "operator", nothing, "the schema does not fit"},
	{"P4099", Answer, Failure, Failure, no, "operator", nothing, "a newer state"},
	{"P4040", Answer, Failure, Failure, no, "nobody", nothing, "the row says that it was handled: acknowledge"},
	{"P4041", Answer, Failure, Failure, no, "caller", nothing, "the row is not there: the message stays"},
	{"P4042", Answer, Failure, Failure, no, "pawl", nothing, "the row holds the error, and is driven again: acknowledge"},
	{"P4051", Answer, Failure, Failure, no, "operator", nothing, "older than what is remembered: it is not known whether it took effect"},
	{"P4002", Answer, Final, Failure, no, "caller", nothing, "the request itself: its key came before with another payload"},
	{"P4030", Answer, Final, Failure, no, "caller", nothing, "the request itself: it failed for good"},
	{"P40", Answer, Failure, Failure, no, "caller", nothing, "the request itself: scope, key, payload, argument"},
}

// Other is the row of a code that the table lacks, such as 42P01 of a schema that is missing, 42501
// of a right, 0A000: a statement of Pawl's that fails with it fails for every message.
var Other = Row{"", Outage, Failure, Failure, no, "nobody", nothing, "the statement itself, or an error that this version does not know"}

// Plain is the row of an error without a code, which is user code's own.
var Plain = Row{"", Failure, Failure, Failure, yes, "caller", request, "the handler's own"}
