package httpkey

import (
	"context"
	"crypto/rand"
	"io"
	rnd "math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/ranges"
)

// A RetryingClient is an [http.RoundTripper] that retries a request with one key:
//
//	client := &http.Client{Transport: &httpkey.RetryingClient{}}
//
// It sets the header Idempotency-Key if it is missing. It retries after a broken connection, 408,
// 425, 429, 500, 502, 503, 504, and 409 with Retry-After. A request with a body but no GetBody is
// sent once. Safe methods get no key. The zero value is fit for production and concurrent use.
type RetryingClient struct {
	// Base sends the requests. Default [http.DefaultTransport].
	Base http.RoundTripper
	// Tries is the maximum number of sends. Default 5.
	Tries int
	// Within bounds when the last try may begin, even with a later Retry-After. Default 30 s.
	Within time.Duration
}

// longestPause is the longest pause that the server did not ask for.
const longestPause = 5 * time.Second

// RoundTrip returns the first response that needs no retry, else the last response or error.
func (c *RetryingClient) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := ranges.NotNegative(*c); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper must, also with an error
		}
		return nil, &pawl.Error{Op: "httpkey.client", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	base, tries := orDefault[http.RoundTripper](c.Base, http.DefaultTransport), orDefault(c.Tries, 5)
	until := time.Now().Add(orDefault(c.Within, 30*time.Second))
	keyed := r.Clone(r.Context()) // a RoundTripper must not change its request
	if !safe(r.Method) && keyed.Header.Get(KeyHeader) == "" {
		keyed.Header.Set(KeyHeader, `"`+rand.Text()+`"`)
	}
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return base.RoundTrip(keyed)
	}
	for try := 1; ; try++ {
		response, err := base.RoundTrip(keyed)
		pause, again := retry(response, err, try)
		if !again || try >= tries || time.Now().Add(pause).After(until) || r.Context().Err() != nil {
			return response, err
		}
		discard(response)
		if !pace.Sleep(r.Context(), pause) {
			return nil, context.Cause(r.Context())
		}
		keyed = keyed.Clone(r.Context())
		if r.GetBody != nil {
			if keyed.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

func safe(method string) bool {
	return method == "" || method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions || method == http.MethodTrace
}

// retry reports whether to retry, and after which pause.
func retry(response *http.Response, err error, try int) (pause time.Duration, again bool) {
	backoff := min(100*time.Millisecond<<min(try, 10), longestPause)
	backoff = backoff/2 + rnd.N(backoff/2)
	if err != nil {
		return backoff, true
	}
	after, asked := retryAfter(response.Header.Get("Retry-After"))
	switch response.StatusCode {
	case http.StatusConflict:
		return after + rnd.N(backoff), asked
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return max(after, backoff), true
	}
	return 0, false
}

// retryAfter reads seconds or a date (RFC 9110, 10.2.3).
func retryAfter(text string) (after time.Duration, ok bool) {
	if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, 1<<30)) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0), true
	}
	return 0, false
}

// discard reads the rest of the body, up to 64 KiB, so that the connection can be reused.
func discard(r *http.Response) {
	if r != nil {
		_, _ = io.CopyN(io.Discard, r.Body, 64<<10)
		_ = r.Body.Close()
	}
}
