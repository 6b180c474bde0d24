package httpkey

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
)

// A Tenant returns the account or user that your authentication found for a request. Tenants share
// neither keys nor answers. An error or an empty name is answered 403.
type Tenant func(*http.Request) (string, error)

// Options of a route. The zero value is fit for production.
type Options struct {
	// Name separates the keys of this route from those of other routes. Within one name a key is
	// used once: if it comes again with another path, that is a mismatch. Default "http".
	Name string
	// Optional makes a request without a key an intent of its own. Default false: 400.
	Optional bool
	// Wait is how long a request waits for another one with its key, to give the same answer. After
	// that it is answered 409. A waiting request holds no database connection. A longer Wait keeps
	// callers hanging, a shorter one makes them retry. Default 0: no wait.
	Wait time.Duration
	// AcquireTimeout is how long, beside Wait, a request may take to enter the handler, for example
	// if all connections are busy. After that it is answered 503. Default 5 s.
	AcquireTimeout time.Duration
	// Timeout ends the handler's context and counts as failure. Default 30 s, with [Leased] 15 min.
	Timeout time.Duration
	// Retention of an answer must outlast every retry. Default 24 h, 1 s to 10 years.
	Retention time.Duration
	// MaxBody is the longest request body in bytes, held in memory; else 413. Default 1 MiB.
	MaxBody int64
	// MaxResponse bounds the stored body and headers in bytes. The first caller gets a longer
	// response whole, up to 32 MiB. Retries get its status, its Location headers and a note; the
	// handler does not run again. Default 1 MiB, at most 4 MiB.
	MaxResponse int
	// Final reports whether a status is the answer from now on. After any other, the same key may
	// be retried. Default: 200 to 499 except 408, 425 and 429.
	Final func(status int) bool
	// KeepRefused commits the rows of a handler that answered 4xx. Default false.
	KeepRefused bool
	// Headers are stored in addition to Content-Disposition, -Encoding, -Language, -Location and
	// -Type, ETag, Last-Modified, Link and Location. Cookies, credentials and connection headers
	// are refused. The first caller gets all headers.
	Headers []string
	// Authorize decides whether a caller may see a stored answer. An error is answered 403.
	// Default: the same tenant with the same request may.
	Authorize func(*http.Request) error
	// Fingerprint returns what must not change under a key; set it if bodies have volatile fields.
	// An error is answered 400. Default: method, path, query and body, byte for byte, no header.
	Fingerprint func(r *http.Request, body []byte) (pawl.Fingerprint, error)
	// Hooks receive the events of the route.
	Hooks pawl.Hooks
}

const (
	mebibyte = 1 << 20
	// mostStored is the database's limit.
	mostStored = 4 * mebibyte
	// mostBuffered bounds a buffered response; a Write beyond it fails.
	mostBuffered = 32 * mebibyte
)

var storedHeaders = []string{"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Type",
	"Etag", "Last-Modified", "Link", "Location"}

// private headers belong to a user, a connection (RFC 9110, 7.6.1) or a single response.
var private = []string{"Set-Cookie", "Set-Cookie2", "Authorization", "Authentication-Info", "Www-Authenticate",
	"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Date", "Idempotent-Replayed"}

// complete fills in the defaults. It panics if the options are invalid.
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
	if p.Wait < 0 || p.AcquireTimeout < 0 || p.MaxBody < 0 || p.MaxResponse < 0 || p.MaxResponse > mostStored {
		panic(fmt.Sprintf("httpkey: no part of the Options may be negative, and MaxResponse is at most %d: %+v", mostStored, p))
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

// wait converts Wait for package command, where a negative value means no wait.
func (p Options) wait() time.Duration {
	if p.Wait == 0 {
		return -1
	}
	return p.Wait
}
