package webhook

import (
	"errors"
	"io"
	"net/http"

	"github.com/pawl-go/pawl/internal/callback"
)

// A Reason is why a request was refused, for logs and alerts, never for the sender. It is stable.
type Reason string

// The reasons, in the order of the checks.
const (
	ReasonMethod             Reason = "method"              // not POST
	ReasonContentEncoding    Reason = "content_encoding"    // compressed: signed octets unclear
	ReasonHeaderMissing      Reason = "header_missing"      // absent or empty
	ReasonHeaderRepeated     Reason = "header_repeated"     // came more than once
	ReasonHeaderTooLarge     Reason = "header_too_large"    // more than 4096 octets
	ReasonBodyTooLarge       Reason = "body_too_large"      // more than Config.MaxBody
	ReasonBodyTimeout        Reason = "body_timeout"        // longer than Config.ReadTimeout
	ReasonBodyTruncated      Reason = "body_truncated"      // the connection ended early
	ReasonBodyEmpty          Reason = "body_empty"          // nothing to verify
	ReasonIDMalformed        Reason = "id_malformed"        // no id that could be signed
	ReasonTimestampMalformed Reason = "timestamp_malformed" // not seconds since 1970 in digits
	ReasonSignatureMalformed Reason = "signature_malformed" // not of this scheme
	ReasonTooManySignatures  Reason = "too_many_signatures" // more than 10
	ReasonSignatureMismatch  Reason = "signature_mismatch"  // forged, changed, or a wrong secret
	ReasonTimestampStale     Reason = "timestamp_stale"     // genuine, older than Config.Tolerance
	ReasonTimestampFuture    Reason = "timestamp_future"    // genuine, ahead of Config.Tolerance
)

type reasonText struct {
	status        int
	meaning, next string
}

// reasonTexts holds status and text of each reason. All reasons about the signature have one
// status, which reveals nothing. None is 410, on which Standard Webhooks senders disable the
// endpoint.
var reasonTexts = map[Reason]reasonText{
	ReasonMethod:             {http.StatusMethodNotAllowed, "the method is not POST", "webhooks use POST; this is another client"},
	ReasonContentEncoding:    {http.StatusUnsupportedMediaType, "the body is encoded", "have sender and proxies send it uncompressed"},
	ReasonHeaderMissing:      {http.StatusUnauthorized, "a header of the scheme is missing", "check that the scheme is the sender's and that no proxy drops headers"},
	ReasonHeaderRepeated:     {http.StatusUnauthorized, "a header of the scheme came more than once", "look for a proxy that adds headers; senders send one"},
	ReasonHeaderTooLarge:     {http.StatusRequestHeaderFieldsTooLarge, "a header is too large", "no sender needs that; this is an attack or a mistake"},
	ReasonBodyTooLarge:       {http.StatusRequestEntityTooLarge, "the body is too large", "raise MaxBody if the sender's payloads are that large"},
	ReasonBodyTimeout:        {http.StatusRequestTimeout, "the body did not arrive in time", "raise ReadTimeout if the sender's connection is that slow"},
	ReasonBodyTruncated:      {http.StatusBadRequest, "the body ended early", "the sender will retry; look for a proxy that closes connections"},
	ReasonBodyEmpty:          {http.StatusUnauthorized, "the body is empty", "look for something that reads the body before the verifier"},
	ReasonIDMalformed:        {http.StatusUnauthorized, "the id is malformed", "check that the scheme is the sender's"},
	ReasonTimestampMalformed: {http.StatusUnauthorized, "the timestamp is malformed", "check that the scheme is the sender's"},
	ReasonSignatureMalformed: {http.StatusUnauthorized, "there is no signature of this scheme", "check scheme, prefix and encoding"},
	ReasonTooManySignatures:  {http.StatusUnauthorized, "there are too many signatures", "no sender needs that; this is an attack or a mistake"},
	ReasonSignatureMismatch:  {http.StatusUnauthorized, "no secret made this signature", "check the secret of this endpoint and that nothing parses or rewrites the body on its way; else it is forged"},
	ReasonTimestampStale:     {http.StatusUnauthorized, "it was signed too long ago", "a replay, a delivery that was held up, or a clock that is off: check yours first"},
	ReasonTimestampFuture:    {http.StatusUnauthorized, "it was signed in the future", "a clock that is off: check yours first"},
}

// A Refusal is the error of a refused request, for logs. It contains header names, limits and
// times, but no payload, no secret and no text of the sender.
type Refusal struct {
	Reason Reason
	Detail string // more about the reason, if any
	Err    error  // the cause, if any
}

// Error reads "webhook.verify: reason: meaning: detail (next step)".
func (r *Refusal) Error() string {
	text := reasonTexts[r.Reason]
	message := "webhook.verify: " + string(r.Reason) + ": " + text.meaning
	if r.Detail != "" {
		message += ": " + r.Detail
	}
	return message + " (" + text.next + ")"
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Status is the status of the response, 4xx.
func (r *Refusal) Status() int { return reasonTexts[r.Reason].status }

// Hint is the next step for an operator.
func (r *Refusal) Hint() string { return reasonTexts[r.Reason].next }

func refuse(reason Reason, detail string) error { return &Refusal{Reason: reason, Detail: detail} }

// ReasonOf returns the [Reason] of err, or "" if err is no [Refusal].
func ReasonOf(err error) Reason {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Reason
	}
	return ""
}

// Refuse answers a request that [Verifier.Read] refused, with the status and its text only.
func Refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	var r *Refusal
	switch {
	case errors.As(err, &r):
		status = r.Status()
	case callback.Panicked(err): // says nothing about the request, so the sender should retry
		status = http.StatusInternalServerError
	}
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	writeStatus(w, status)
}

func writeStatus(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, http.StatusText(status)+"\n") // the client may have gone
}
