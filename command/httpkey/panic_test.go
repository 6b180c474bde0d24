package httpkey_test

import (
	"net/http"
	"runtime"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command/httpkey"
)

// If a function of the options panics or exits, the request is answered 500 and reported, and
// leaves no order. The same key takes effect later.
func TestOptions_Panics(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(o *httpkey.Options, who *httpkey.Tenant, end func()){
		"Tenant": func(_ *httpkey.Options, who *httpkey.Tenant, end func()) {
			*who = func(*http.Request) (string, error) { end(); return "acme", nil }
		},
		"Fingerprint": func(o *httpkey.Options, _ *httpkey.Tenant, end func()) {
			o.Fingerprint = func(_ *http.Request, body []byte) (pawl.Fingerprint, error) {
				end()
				return pawl.FingerprintOf(body), nil
			}
		},
		"Final": func(o *httpkey.Options, _ *httpkey.Tenant, end func()) {
			o.Final = func(int) bool { end(); return true }
		},
	} {
		for how, end := range map[string]func(){"panics": func() { panic("boom") }, "exits": runtime.Goexit} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				bad := true
				options, who := httpkey.Options{Hooks: b.hooks()}, httpkey.Tenant(tenant)
				set(&options, &who, func() {
					if bad {
						end()
					}
				})
				s := b.serve(httpkey.Once(b.pool, who, options, place))
				b.wantProblem(s.post("k", "one"), http.StatusInternalServerError, "not-done", false)
				b.wantOrders(0)
				if n := b.counters.Count(pawl.EventError) + b.counters.Count(pawl.EventRetryable); n != 1 {
					t.Errorf("%d events, %v", n, b.counters)
				}
				bad = false
				b.wantStatus(s.post("k", "one"), http.StatusCreated)
				b.wantOrders(1)
			})
		}
	}
}

// While Authorize panics, nothing is replayed. ErrAbortHandler aborts the response.
func TestAuthorize_Panics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var cause any = "boom"
	s := b.once(place, httpkey.Options{Authorize: func(*http.Request) error { panic(cause) }})
	b.wantStatus(s.post("k", "one"), http.StatusCreated)
	b.wantProblem(s.post("k", "one"), http.StatusInternalServerError, "not-done", false)
	cause = http.ErrAbortHandler
	if g, err := s.try(t.Context(), "k", "one"); err == nil {
		t.Errorf("a response that was to be aborted is %v", g)
	}
	b.wantOrders(1)
}
