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

// A Tenant says on whose behalf a request comes, from what your authentication found out: an account, a user. Keys of
// different tenants never meet, and neither do their answers. An error, or the empty name, is answered 403.
type Tenant func(*http.Request) (string, error)

// Options of a route. The zero value is fit for production.
type Options struct {
	// Name separates the keys of this route from those of routes with other names. Within one name a key is used once,
	// whatever the path: the second use is a mismatch. Default "http".
	Name string
	// Optional lets requests without a key through, each as an intent of its own. Default false: they are answered 400.
	Optional bool
	// Wait is how long a request waits for another one with its key, to give the same answer; after that it is answered 409.
	// A waiting request holds no connection of the database. Longer keeps callers hanging, shorter makes them ask again.
	// Default 0: not at all.
	Wait time.Duration
	// AcquireTimeout is how long a request may take, beside Wait, until the handler is entered, as when all connections are busy;
	// after that it is answered 503. Default 5 s.
	AcquireTimeout time.Duration
	// Timeout ends the handler's context; it counts as a failure. Default 30 s; of [Leased] 15 min.
	Timeout time.Duration
	// Retention is how long an answer is remembered. It must outlast every retry of every caller. Default 24 h, 1 s to 10 years.
	Retention time.Duration
	// MaxBody is the longest request body in octets; a longer one is answered 413. It is held in memory. Default 1 MiB.
	MaxBody int64
	// MaxResponse is how much of a response is stored, in octets of body and headers. The first caller gets a longer one
	// whole, up to 32 MiB; those who ask again get its status, its headers and a note instead of the body. It never runs
	// again for that. Default 1 MiB, at most 4 MiB.
	MaxResponse int
	// Final says which statuses are the answer from now on; others are passed on, and the same key may be tried again.
	// Default: 200 to 499 except 408, 425 and 429.
	Final func(status int) bool
	// KeepRefused commits what a handler wrote that answered 4xx. Default false: it is rolled back.
	KeepRefused bool
	// Headers are stored with the answer beside Content-Disposition, -Encoding, -Language, -Location and -Type, ETag,
	// Last-Modified, Link and Location. Cookies, credentials and headers of a connection are refused. The first caller gets all.
	Headers []string
	// Authorize is asked before a stored answer is given again: whether this caller may still see it. An error is answered
	// 403. Default: whoever is the same tenant and sends the same request may.
	Authorize func(*http.Request) error
	// Fingerprint says what of a request must not change under its key, for bodies with volatile fields; an error is answered
	// 400. Default: method, path, query and body, octet by octet, and no header.
	Fingerprint func(r *http.Request, body []byte) (pawl.Fingerprint, error)
	// Hooks receive what happens.
	Hooks pawl.Hooks
}

const (
	mebibyte = 1 << 20
	// mostStored is the database's limit.
	mostStored = 4 * mebibyte
	// mostBuffered bounds a response that is kept back until COMMIT; a Write beyond it fails.
	mostBuffered = 32 * mebibyte
)

var storedHeaders = []string{"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Type",
	"Etag", "Last-Modified", "Link", "Location"}

// private are headers that are somebody's or some connection's own (RFC 9110, 7.6.1), or made anew for each response.
var private = []string{"Set-Cookie", "Set-Cookie2", "Authorization", "Authentication-Info", "Www-Authenticate",
	"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Date", "Idempotent-Replayed"}

// complete fills in the defaults. It panics if the options cannot be.
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

// wait is Wait as package command counts it, where none is negative.
func (p Options) wait() time.Duration {
	if p.Wait == 0 {
		return -1
	}
	return p.Wait
}
