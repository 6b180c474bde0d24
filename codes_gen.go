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
	// CodeTransactionLost: the handler's transaction was lost or made read-only while the server answers others. Retry: yes.
	CodeTransactionLost Code = "P4032"
	// CodeAlreadyHandled: the row says that it was handled before. Retry: no.
	CodeAlreadyHandled Code = "P4040"
	// CodeNotFound: there is no such row. Retry: no.
	CodeNotFound Code = "P4041"
	// CodeFailureRecorded: the attempt failed and the row holds the error. Retry: no.
	CodeFailureRecorded Code = "P4042"
	// CodeDeliveryStale: the delivery is older than what is remembered. Retry: no.
	CodeDeliveryStale Code = "P4051"
	// CodeSchemaMismatch: the database schema does not fit this build. Retry: no.
	CodeSchemaMismatch Code = "P4098"
	// CodeUnknownState: a state this version does not know. Retry: no.
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
	ErrTransactionLost    = &Error{Code: CodeTransactionLost}    // the handler's transaction was lost or made read-only while the server answers others
	ErrAlreadyHandled     = &Error{Code: CodeAlreadyHandled}     // the row says that it was handled before
	ErrNotFound           = &Error{Code: CodeNotFound}           // there is no such row
	ErrFailureRecorded    = &Error{Code: CodeFailureRecorded}    // the attempt failed and the row holds the error
	ErrDeliveryStale      = &Error{Code: CodeDeliveryStale}      // the delivery is older than what is remembered
	ErrSchemaMismatch     = &Error{Code: CodeSchemaMismatch}     // the database schema does not fit this build
	ErrUnknownState       = &Error{Code: CodeUnknownState}       // a state this version does not know
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
	CodeOutcomeUnknown:     {"it is unknown whether the intent took effect", "find out and settle it with command_settle or step_settle; see pawl_v1.stale_classify"},
	CodeTransactionLost:    {"the handler's transaction was lost or made read-only while the server answers others", "look for what ends the handler's session or sets it read-only; transaction_timeout and idle_in_transaction_session_timeout are usual"},
	CodeAlreadyHandled:     {"the row says that it was handled before", "acknowledge the message"},
	CodeNotFound:           {"there is no such row", "look for the transaction that should have written it; the message stays"},
	CodeFailureRecorded:    {"the attempt failed and the row holds the error", "acknowledge the message; the sweeper drives the row again"},
	CodeDeliveryStale:      {"the delivery is older than what is remembered", "find out whether it took effect; then retry or discard the dead letter"},
	CodeSchemaMismatch:     {"the database schema does not fit this build", "run pawl migrate up with the build you deploy"},
	CodeUnknownState:       {"a state this version does not know", "upgrade Pawl on this process"},
	CodeCommitUnknown:      {"the reply to COMMIT was lost: the transaction may have committed", "claim the same key again; the database has the answer"},
}
