package webhook

import (
	"errors"
	"io"
	"net/http"

	"github.com/pawl-go/pawl/internal/callback"
)

// A Reason says why a request was refused: for logs, metrics and alarms, never for its sender. The words do not change.
type Reason string

// The reasons, in the order in which they are looked for.
const (
	ReasonMethod             Reason = "method"              // not POST
	ReasonContentEncoding    Reason = "content_encoding"    // compressed: which octets were signed is not clear
	ReasonHeaderMissing      Reason = "header_missing"      // a header of the scheme is absent or empty
	ReasonHeaderRepeated     Reason = "header_repeated"     // a header of the scheme came twice
	ReasonHeaderTooLarge     Reason = "header_too_large"    // a header has more than 4096 octets
	ReasonBodyTooLarge       Reason = "body_too_large"      // more than Config.MaxBody
	ReasonBodyTimeout        Reason = "body_timeout"        // not read within Config.ReadTimeout
	ReasonBodyTruncated      Reason = "body_truncated"      // the connection ended before the body did
	ReasonBodyEmpty          Reason = "body_empty"          // nothing to verify
	ReasonIDMalformed        Reason = "id_malformed"        // the id header is none that could have been signed
	ReasonTimestampMalformed Reason = "timestamp_malformed" // not seconds since 1970 in plain digits
	ReasonSignatureMalformed Reason = "signature_malformed" // no signature that this scheme could have made
	ReasonTooManySignatures  Reason = "too_many_signatures" // more than 10 in one request
	ReasonSignatureMismatch  Reason = "signature_mismatch"  // no secret made it: forged, changed on the way, or a wrong secret
	ReasonTimestampStale     Reason = "timestamp_stale"     // genuine, signed longer ago than Config.Tolerance
	ReasonTimestampFuture    Reason = "timestamp_future"    // genuine, signed further ahead than Config.Tolerance
)

type reasonText struct {
	status        int
	meaning, next string
}

// reasonTexts gives each reason its answer. All that touches the signature is answered alike, so that nothing can be learnt
// from it. No reason is 410, upon which senders of Standard Webhooks give the endpoint up.
var reasonTexts = map[Reason]reasonText{
	ReasonMethod:             {http.StatusMethodNotAllowed, "the method is not POST", "webhooks are POST; this is somebody else"},
	ReasonContentEncoding:    {http.StatusUnsupportedMediaType, "the body is encoded", "have sender and proxies send it uncompressed"},
	ReasonHeaderMissing:      {http.StatusUnauthorized, "a header of the scheme is missing", "check that the scheme is the sender's and that no proxy drops headers"},
	ReasonHeaderRepeated:     {http.StatusUnauthorized, "a header of the scheme came more than once", "look for a proxy that adds headers; senders send one"},
	ReasonHeaderTooLarge:     {http.StatusRequestHeaderFieldsTooLarge, "a header is too large", "no sender needs that; this is an attack or a mistake"},
	ReasonBodyTooLarge:       {http.StatusRequestEntityTooLarge, "the body is too large", "raise MaxBody if the sender's payloads are that large"},
	ReasonBodyTimeout:        {http.StatusRequestTimeout, "the body did not arrive in time", "raise ReadTimeout if the sender's line is that slow"},
	ReasonBodyTruncated:      {http.StatusBadRequest, "the body ended early", "the sender will try again; look for a proxy that cuts off"},
	ReasonBodyEmpty:          {http.StatusUnauthorized, "the body is empty", "look for something that reads the body before the verifier"},
	ReasonIDMalformed:        {http.StatusUnauthorized, "the id is malformed", "check that the scheme is the sender's"},
	ReasonTimestampMalformed: {http.StatusUnauthorized, "the timestamp is malformed", "check that the scheme is the sender's"},
	ReasonSignatureMalformed: {http.StatusUnauthorized, "there is no signature of this scheme", "check scheme, prefix and encoding; hexadecimal digits are lower case"},
	ReasonTooManySignatures:  {http.StatusUnauthorized, "there are too many signatures", "no sender needs that; this is an attack or a mistake"},
	ReasonSignatureMismatch:  {http.StatusUnauthorized, "no secret made this signature", "check the secret of this endpoint and that nothing parses or rewrites the body on its way; else it is forged"},
	ReasonTimestampStale:     {http.StatusUnauthorized, "it was signed too long ago", "a replay, a delivery that was held up, or a clock that is off: check yours first"},
	ReasonTimestampFuture:    {http.StatusUnauthorized, "it was signed in the future", "a clock that is off: check yours first"},
}

// A Refusal says why a request was refused. It is for logs: it names headers, limits and times, and holds neither payload nor
// secret nor anything the sender chose.
type Refusal struct {
	Reason Reason
	Detail string // what exactly, if there is more to say
	Err    error  // the cause, if there is one
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

// Status is the answer to the sender, 4xx.
func (r *Refusal) Status() int { return reasonTexts[r.Reason].status }

// Hint is the next step for a person.
func (r *Refusal) Hint() string { return reasonTexts[r.Reason].next }

func refuse(reason Reason, detail string) error { return &Refusal{Reason: reason, Detail: detail} }

// ReasonOf returns why err refuses a request, or "" if it does not.
func ReasonOf(err error) Reason {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Reason
	}
	return ""
}

// Refuse answers a request that [Verifier.Read] refused: the status, its words, and nothing about why.
func Refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	var r *Refusal
	switch {
	case errors.As(err, &r):
		status = r.Status()
	case callback.Panicked(err): // nothing is said of the request: the sender is to come again
		status = http.StatusInternalServerError
	}
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	plain(w, status)
}

// plain answers a status and its words, and nothing else.
func plain(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, http.StatusText(status)+"\n") // nobody may be left to read it
}
