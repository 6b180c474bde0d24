package httpkey

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
)

// An exchange is one request and its response.
type exchange struct {
	options Options
	w       http.ResponseWriter
	r       *http.Request
	body    []byte
	intent  pawl.Intent
	keyed   bool // the caller sent the key
	last    *recording
	told    atomic.Bool // an event has reported the error
}

// enter reads the request up to its intent. If that is invalid, it answers and returns false.
func enter(p Options, tenant Tenant, w http.ResponseWriter, r *http.Request) (x *exchange, ok bool) {
	x = &exchange{options: p, w: w, r: r}
	if wrong := x.read(tenant); wrong != nil {
		wrong.write(w)
		return nil, false
	}
	return x, true
}

func (x *exchange) read(tenant Tenant) (wrong *Problem) {
	key, err := keyOf(x.r)
	if err != nil {
		return problem(keyMalformed).because(err)
	}
	if x.keyed = key != ""; !x.keyed && !x.options.Optional {
		return problem(keyMissing)
	}
	if !x.keyed {
		key = rand.Text()
	}
	var name string
	err = x.call("Tenant", func() (err error) {
		name, err = tenant(x.r)
		return err
	})
	switch {
	case callback.Panicked(err):
		return problem(failed)
	case err != nil || name == "":
		return problem(forbidden)
	}
	if wrong := x.readBody(); wrong != nil {
		return wrong
	}
	var print pawl.Fingerprint
	err = x.call("Options.Fingerprint", func() (err error) {
		print, err = x.options.Fingerprint(x.request(x.r.Context()), x.body)
		return err
	})
	switch {
	case callback.Panicked(err):
		return problem(failed)
	case err != nil:
		return problem(unreadable).because(err)
	}
	x.intent = pawl.Intent{Scope: scope(x.options.Name, name), Key: key, Fingerprint: print}
	if err := x.intent.Validate(); err != nil {
		return problem(unreadable)
	}
	return nil
}

// call runs a user's function outside the command and reports a panic. As in [http.Handler], a
// panic with ErrAbortHandler aborts the response.
func (x *exchange) call(what string, fn func() error) error {
	err := callback.Do(what, fn)
	if callback.CauseOf(err) == http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
		panic(http.ErrAbortHandler)
	}
	if callback.Panicked(err) {
		x.options.Hooks.Emit(x.r.Context(), pawl.Event{Kind: pawl.EventError, Op: "command.claim", Scope: x.intent.Scope, Key: x.intent.Key, Err: err})
	}
	return err
}

// scope returns the scope of a tenant. A name that cannot be in a scope is hashed.
func scope(route, tenant string) string {
	if s := pawl.Key(route, tenant); (pawl.Intent{Scope: s, Key: "k", Fingerprint: pawl.FingerprintOf()}).Validate() == nil {
		return s
	}
	return pawl.Key(route, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(tenant))))
}

func (x *exchange) readBody() (wrong *Problem) {
	if x.r.Body == nil {
		return nil
	}
	var err error
	x.body, err = io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, x.options.MaxBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return problem(tooLarge).because(fmt.Errorf("at most %d octets are allowed", x.options.MaxBody))
	case err != nil:
		return problem(unreadable)
	case len(x.body) == 0 && x.r.ContentLength != 0:
		return problem(bodyTaken).because(errBodyTaken)
	}
	return nil
}

// errBodyTaken is returned if a request announces a body and nothing is left to read. Without this
// check, requests with different bodies would have the same fingerprint.
var errBodyTaken = errors.New("put package httpkey in front of what reads the body, such as a check of a form's token; if the body is empty, send Content-Length: 0")

// request returns the caller's request, with a body of its own for each run.
func (x *exchange) request(ctx context.Context) *http.Request {
	r := x.r.Clone(ctx)
	r.Body = io.NopCloser(bytes.NewReader(x.body))
	r.ContentLength = int64(len(x.body))
	r.TransferEncoding = nil
	return r
}

// A leash ends with the caller's context, or after Wait and AcquireTimeout, until the handler is
// entered. From then on the work continues without a caller, because a retry gets its answer.
type leash struct {
	context.Context
	cancel context.CancelCauseFunc
	slip   func()
}

var errImpatient = errors.New("the handler could not be entered in time")

func (x *exchange) leash() *leash {
	l := &leash{}
	l.Context, l.cancel = context.WithCancelCause(context.WithoutCancel(x.r.Context()))
	caller := context.AfterFunc(x.r.Context(), func() { l.cancel(context.Cause(x.r.Context())) })
	clock := time.AfterFunc(x.options.Wait+x.options.AcquireTimeout, func() { l.cancel(errImpatient) })
	l.slip = func() {
		caller()
		clock.Stop()
	}
	return l
}

// enter detaches the work from the caller, unless the leash has ended.
func (l *leash) enter() error {
	l.slip()
	return context.Cause(l)
}

func (l *leash) end() {
	l.slip()
	l.cancel(nil)
}
