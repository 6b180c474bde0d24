package httpkey

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
)

// A Problem is the body of each response that is not the handler's (RFC 9457).
type Problem struct {
	Type   string `json:"type"` // a section of docs/guides/http.md
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// RetryAfter is when to retry, in seconds, as in the header Retry-After; 0: do not.
	RetryAfter int `json:"retry_after,omitempty"`
	// NewKeySafe means that no request with this key has taken effect or will, so you may use
	// another key. If it is false, a new key may cause a second effect: an earlier request with
	// this key may have been executed and its answer lost. That also holds if this request is
	// refused as unreadable.
	NewKeySafe bool `json:"new_key_safe"`

	headers http.Header
}

const guide = "https://github.com/pawl-go/pawl/blob/main/docs/guides/http.md#"

// A problemKind is the constant part of a problem. name is its heading in the guide.
type problemKind struct {
	name, title string
	status      int
	retryAfter  int
	newKeySafe  bool
}

var (
	keyMissing   = problemKind{"key-missing", "The header Idempotency-Key is required", 400, 0, true}
	keyMalformed = problemKind{"key-malformed", "The header Idempotency-Key cannot be read", 400, 0, true}
	unreadable   = problemKind{"request-unreadable", "The request cannot be read", 400, 0, false}
	tooLarge     = problemKind{"request-too-large", "The request body is too large", 413, 0, false}
	bodyTaken    = problemKind{"body-taken", "The body was read before the key was checked", 500, 0, false}
	forbidden    = problemKind{"forbidden", "This caller may not see the answer", 403, 0, false}
	keyReused    = problemKind{"key-reused", "The key was used before with another request", 422, 0, false}
	inProgress   = problemKind{"in-progress", "A request with this key is being worked on", 409, 1, false}
	unsure       = problemKind{"outcome-unknown", "An earlier request with this key may have taken effect; its outcome must be settled", 409, 0, false}
	failedFinal  = problemKind{"failed", "The request failed for good and had no effect", 422, 0, true}
	failed       = problemKind{"not-done", "The request failed and may be sent again with the same key", 500, 1, false}
	unavailable  = problemKind{"unavailable", "Send the request again with the same key", 503, 1, false}
	notKept      = problemKind{"answer-not-kept", "The request was carried out; its answer was not kept", 200, 0, false}
)

func problem(k problemKind) *Problem {
	return &Problem{Type: guide + k.name, Title: k.title, Status: k.status, RetryAfter: k.retryAfter, NewKeySafe: k.newKeySafe}
}

// because adds a detail that the caller can act on.
func (p *Problem) because(err error) *Problem {
	p.Detail = err.Error()
	return p
}

// omitted returns the problem that replaces a body that was not stored.
func omitted(r *command.Response) *Problem {
	p := problem(notKept)
	p.Status, p.headers = r.Status, r.Headers
	return p
}

// problemOf returns the problem for an error, without its text, which may describe the database.
func problemOf(err error) *Problem {
	switch saidOf(err) {
	case pawl.CodeKeyReused:
		return problem(keyReused)
	case pawl.CodeInProgress, pawl.CodeFenceLost:
		p := problem(inProgress)
		if after, ok := command.RetryAfter(err); ok {
			p.RetryAfter = int(math.Ceil(max(after, time.Second).Seconds()))
		}
		return p
	case pawl.CodeOutcomeUnknown:
		return problem(unsure)
	case pawl.CodeFailedFinal:
		return problem(failedFinal)
	}
	switch {
	case pawl.MayHaveHappened(err), pawl.Retryable(err), pawl.Unreachable(err), errors.Is(err, errImpatient),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return problem(unavailable)
	}
	return problem(failed)
}

// saidOf returns the code of the outermost error. Those below it may be about other keys.
func saidOf(err error) pawl.Code {
	var outermost *pawl.Error
	if !errors.As(err, &outermost) {
		return ""
	}
	return outermost.Code
}

func (p *Problem) write(w http.ResponseWriter) {
	body, _ := json.Marshal(p) // cannot fail for strings and numbers
	headers := p.headers.Clone()
	if headers == nil {
		headers = http.Header{}
	}
	headers.Set("Content-Type", "application/problem+json")
	if p.RetryAfter > 0 {
		headers.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	send(w, p.Status, headers, body)
}
