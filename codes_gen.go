// Code generated from schema/sqlstates.csv by schema/internal/gen/sqlstates. DO NOT EDIT.

package pawl

// The codes Pawl's SQL functions and Go packages report. docs/reference/errors.md lists them.
const (
	// CodeScopeInvalid: scope is missing or over its limit. Retry: no.
	CodeScopeInvalid Code = "P4000"
	// CodeKeyInvalid: key is missing or over its limit. Retry: no.
	CodeKeyInvalid Code = "P4001"
	// CodeKeyReused: key was used before with a different payload. Retry: no.
	CodeKeyReused Code = "P4002"
	// CodeFingerprintInvalid: fingerprint is missing or malformed. Retry: no.
	CodeFingerprintInvalid Code = "P4003"
	// CodeArgumentInvalid: an argument is missing or out of its bounds. Retry: no.
	CodeArgumentInvalid Code = "P4004"
	// CodeFenceLost: fence lost: this attempt no longer holds its work. Retry: no.
	CodeFenceLost Code = "P4020"
	// CodeInProgress: the same intent is being processed now. Retry: yes.
	CodeInProgress Code = "P4029"
	// CodeFailedFinal: the intent failed for good earlier. Retry: no.
	CodeFailedFinal Code = "P4030"
	// CodeOutcomeUnknown: it is unknown whether the intent took effect. Retry: no.
	CodeOutcomeUnknown Code = "P4031"
	// CodeTransactionLost: the handler's transaction was lost or made read-only although the server answers on other connections. Retry: yes.
	CodeTransactionLost Code = "P4032"
	// CodeAlreadyHandled: the row of your table was handled before. Retry: no.
	CodeAlreadyHandled Code = "P4040"
	// CodeNotFound: there is no such row. Retry: no.
	CodeNotFound Code = "P4041"
	// CodeFailureRecorded: the work failed and the row of your table holds the error. Retry: no.
	CodeFailureRecorded Code = "P4042"
	// CodeDeliveryStale: the delivery is so old that its key may have been purged. Retry: no.
	CodeDeliveryStale Code = "P4051"
	// CodeSchemaMismatch: the database schema does not fit this build. Retry: no.
	CodeSchemaMismatch Code = "P4098"
	// CodeUnknownState: the database has a state that this version does not know. Retry: no.
	CodeUnknownState Code = "P4099"
	// CodeCommitUnknown: the reply to COMMIT was lost: the transaction may have committed. Retry: depends.
	CodeCommitUnknown Code = "08007"
)

// One error for each code. Compare with errors.Is.
var (
	ErrScopeInvalid       = &Error{Code: CodeScopeInvalid}       // scope is missing or over its limit
	ErrKeyInvalid         = &Error{Code: CodeKeyInvalid}         // key is missing or over its limit
	ErrKeyReused          = &Error{Code: CodeKeyReused}          // key was used before with a different payload
	ErrFingerprintInvalid = &Error{Code: CodeFingerprintInvalid} // fingerprint is missing or malformed
	ErrArgumentInvalid    = &Error{Code: CodeArgumentInvalid}    // an argument is missing or out of its bounds
	ErrFenceLost          = &Error{Code: CodeFenceLost}          // fence lost: this attempt no longer holds its work
	ErrInProgress         = &Error{Code: CodeInProgress}         // the same intent is being processed now
	ErrFailedFinal        = &Error{Code: CodeFailedFinal}        // the intent failed for good earlier
	ErrOutcomeUnknown     = &Error{Code: CodeOutcomeUnknown}     // it is unknown whether the intent took effect
	ErrTransactionLost    = &Error{Code: CodeTransactionLost}    // the handler's transaction was lost or made read-only although the server answers on other connections
	ErrAlreadyHandled     = &Error{Code: CodeAlreadyHandled}     // the row of your table was handled before
	ErrNotFound           = &Error{Code: CodeNotFound}           // there is no such row
	ErrFailureRecorded    = &Error{Code: CodeFailureRecorded}    // the work failed and the row of your table holds the error
	ErrDeliveryStale      = &Error{Code: CodeDeliveryStale}      // the delivery is so old that its key may have been purged
	ErrSchemaMismatch     = &Error{Code: CodeSchemaMismatch}     // the database schema does not fit this build
	ErrUnknownState       = &Error{Code: CodeUnknownState}       // the database has a state that this version does not know
	ErrCommitUnknown      = &Error{Code: CodeCommitUnknown}      // the reply to COMMIT was lost: the transaction may have committed
)

var codeTexts = map[Code]codeText{
	CodeScopeInvalid:       {"scope is missing or over its limit", "pass a scope of 1 to 255 octets"},
	CodeKeyInvalid:         {"key is missing or over its limit", "pass a key of 1 to 255 octets"},
	CodeKeyReused:          {"key was used before with a different payload", "use a new key for a new intent or fix the caller that changes its payload between retries"},
	CodeFingerprintInvalid: {"fingerprint is missing or malformed", "pass the 32 octets of a SHA-256"},
	CodeArgumentInvalid:    {"an argument is missing or out of its bounds", "correct the argument that the error names"},
	CodeFenceLost:          {"fence lost: this attempt no longer holds its work", "drop this attempt; its transaction must not commit"},
	CodeInProgress:         {"the same intent is being processed now", "retry after the time in retry_after"},
	CodeFailedFinal:        {"the intent failed for good earlier", "read the stored failure; a retry needs a new key"},
	CodeOutcomeUnknown:     {"it is unknown whether the intent took effect", "find out whether it did and settle it with command_settle or step_settle; pawl_v1.stale_classify lists it"},
	CodeTransactionLost:    {"the handler's transaction was lost or made read-only although the server answers on other connections", "look for what ends the handler's session or sets it read-only; usual causes are transaction_timeout and idle_in_transaction_session_timeout"},
	CodeAlreadyHandled:     {"the row of your table was handled before", "acknowledge the message"},
	CodeNotFound:           {"there is no such row", "look for the transaction that should have written it; do not acknowledge a message about it"},
	CodeFailureRecorded:    {"the work failed and the row of your table holds the error", "acknowledge the message; a Sweeper retries the row unless the error is final"},
	CodeDeliveryStale:      {"the delivery is so old that its key may have been purged", "find out whether it took effect; then retry or discard the dead letter"},
	CodeSchemaMismatch:     {"the database schema does not fit this build", "run pawl migrate up with the build you deploy"},
	CodeUnknownState:       {"the database has a state that this version does not know", "upgrade Pawl in this process"},
	CodeCommitUnknown:      {"the reply to COMMIT was lost: the transaction may have committed", "claim the same key again; the database has the answer"},
}
