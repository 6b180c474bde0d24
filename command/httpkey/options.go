package httpkey

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/internal/ranges"
)

// A Tenant returns the account or user that your authentication found for a request. Tenants share
// neither keys nor answers. An error or an empty name is answered 403.
type Tenant func(*http.Request) (string, error)

// Options of a route. The zero value is fit for production.
type Options struct {
	// Name separates the keys of this route from those of routes with other names. Routes with one
	// name share their keys: a key that comes with another path is answered 422. Default "http".
	Name string
	// Optional allows requests without a key. Each takes effect, as without this package. By
	// default they are answered 400.
	Optional bool
	// Wait is how long a request waits for another one with its key, to give the same answer. After
	// that it is answered 409. A waiting request holds no database connection. A longer Wait keeps
	// callers hanging, a shorter one makes them retry. Default 0: no wait.
	Wait time.Duration
	// AcquireTimeout is how long a request may take to enter the handler, Wait not included, for
	// example if all connections are busy. After that it is answered 503. Default 5 s.
	AcquireTimeout time.Duration
	// Timeout bounds the handler: when it expires, the handler's context ends, and the request has
	// failed. Default 30 s, with [Leased] 15 min.
	Timeout time.Duration
	// Retention is how long a response is stored. Choose it longer than clients retry: a later
	// retry runs the handler again. Default 24 h, 1 s to 10 years.
	Retention time.Duration
	// MaxBody bounds a request's body in bytes, which is held in memory. A longer one is answered
	// 413. Default 1 MiB.
	MaxBody int64
	// MaxResponse bounds the stored body and headers in bytes. If a response is longer, the first
	// caller gets it whole, up to 32 MiB. Retries get its status, Location and Content-Location,
	// and a problem document in place of the body; the handler does not run again. Default 1 MiB,
	// at most 4 MiB.
	MaxResponse int
	// Final reports whether a response with this status is stored and replayed. After another
	// status the same key may be retried. Default: 200 to 499 except 408, 425 and 429.
	Final func(status int) bool
	// KeepRefused commits the rows of a handler whose final status is 4xx. By default they are
	// rolled back. It has no effect with [Leased].
	KeepRefused bool
	// Headers names response headers that are stored in addition to Content-Disposition,
	// Content-Encoding, Content-Language, Content-Location, Content-Type, ETag, Last-Modified, Link
	// and Location. Headers of a user, a connection or a single response, such as Set-Cookie and
	// Date, are not allowed. The first caller gets all headers of the handler.
	Headers []string
	// Authorize decides whether a request may get the stored response of its key. An error is
	// answered 403. It is called in addition to the checks of tenant and fingerprint. Default: no
	// further check.
	Authorize func(*http.Request) error
	// Fingerprint identifies a request: a key that comes with another fingerprint is answered 422.
	// Set it if bodies have volatile fields. An error is answered 400. Default: method, path, query
	// and body, byte for byte, and no header.
	Fingerprint func(r *http.Request, body []byte) (pawl.Fingerprint, error)
	// Hooks receive the events of the route. Default: log to [log/slog.Default].
	Hooks pawl.Hooks
}

const (
	mebibyte         = 1 << 20
	longestRetention = 3650 * 24 * time.Hour
	// mostStored is the limit of the column in pawl.command.
	mostStored = 4 * mebibyte
	// mostBuffered bounds a buffered response; a Write beyond it fails.
	mostBuffered = 32 * mebibyte
)

var storedHeaders = []string{"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Type",
	"Etag", "Last-Modified", "Link", "Location"}

// private headers must not be stored: they belong to a user, a connection (RFC 9110, 7.6.1) or a
// single response. So do those that begin with Proxy-.
var private = []string{"Set-Cookie", "Set-Cookie2", "Authorization", "Authentication-Info", "Www-Authenticate",
	"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Date", "Idempotent-Replayed"}

// complete fills in the defaults. It panics if a field is out of its bounds, or if a header must
// not be stored.
func (p Options) complete() Options {
	p.Name = orDefault(p.Name, "http")
	p.AcquireTimeout = orDefault(p.AcquireTimeout, 5*time.Second)
	p.MaxBody = orDefault(p.MaxBody, mebibyte)
	p.MaxResponse = orDefault(p.MaxResponse, mebibyte)
	if p.Final == nil {
		p.Final = isFinal
	}
	if p.Fingerprint == nil {
		p.Fingerprint = fingerprint
	}
	if err := ranges.NotNegative(p); err != nil {
		panic("httpkey: " + err.Error())
	}
	if p.MaxResponse > mostStored {
		panic(fmt.Sprintf("httpkey: the MaxResponse is at most %d, it is %d", mostStored, p.MaxResponse))
	}
	if p.Retention != 0 && (p.Retention < time.Second || p.Retention > longestRetention) {
		panic(fmt.Sprintf("httpkey: the Retention must lie between 1s and 10 years, it is %v", p.Retention))
	}
	headers := slices.Clone(storedHeaders)
	for _, name := range p.Headers {
		name = http.CanonicalHeaderKey(name)
		if slices.Contains(private, name) || strings.HasPrefix(name, "Proxy-") {
			panic("httpkey: the header " + name + " must not be stored")
		}
		headers = append(headers, name)
	}
	p.Headers = headers
	return p
}

func orDefault[T comparable](value, otherwise T) T {
	if value == *new(T) {
		return otherwise
	}
	return value
}

func isFinal(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 200 && status < 500
}

func fingerprint(r *http.Request, body []byte) (pawl.Fingerprint, error) {
	return pawl.FingerprintOf([]byte(r.Method), []byte(r.URL.EscapedPath()), []byte(r.URL.RawQuery), body), nil
}

func (p Options) command() command.Options {
	return command.Options{Wait: p.wait(), Timeout: p.Timeout, Retention: p.Retention, Hooks: p.Hooks}
}

// wait converts Wait for package command, where 0 is its default of 10 s and a negative value is no
// wait.
func (p Options) wait() time.Duration {
	if p.Wait == 0 {
		return -1
	}
	return p.Wait
}
