package httpkey_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/command/httpkey"
)

// script starts a server that gives each answer in turn, then 200, and records the requests.
func script(t *testing.T, answers ...func(http.ResponseWriter)) (url string, seen *[]string) {
	t.Helper()
	seen = &[]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*seen = append(*seen, r.Header.Get("Idempotency-Key")+" "+string(body))
		if n := len(*seen); n <= len(answers) {
			answers[n-1](w)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, seen
}

func status(code int, headers ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
	}
}

func broken(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// Every try carries the same key and the whole body, until a response needs no retry.
func TestRetryingClient(t *testing.T) {
	t.Parallel()
	past := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	for name, c := range map[string]struct {
		answers []func(http.ResponseWriter)
		tries   int
		status  int
	}{
		"at once":                      {nil, 1, 200},
		"broken, busy, away":           {[]func(http.ResponseWriter){broken, status(409, "Retry-After", "0"), status(503, "Retry-After", past)}, 4, 200},
		"too often":                    {[]func(http.ResponseWriter){status(500), status(502), status(503), status(504), status(429), status(200)}, 5, 429},
		"an answer":                    {[]func(http.ResponseWriter){status(422)}, 1, 422},
		"a conflict that is an answer": {[]func(http.ResponseWriter){status(409)}, 1, 409},
		"asked to wait for too long":   {[]func(http.ResponseWriter){status(503, "Retry-After", "3600")}, 1, 503},
		"a date too far":               {[]func(http.ResponseWriter){status(503, "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT")}, 1, 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, seen := script(t, c.answers...)
			client := &http.Client{Transport: &httpkey.RetryingClient{}}
			response, err := client.Post(url, "text/plain", strings.NewReader("two shoes"))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != c.status || len(*seen) != c.tries {
				t.Errorf("%d after %d tries, want %d after %d", response.StatusCode, len(*seen), c.status, c.tries)
			}
			for _, s := range *seen {
				if s != (*seen)[0] || !strings.HasPrefix(s, `"`) || !strings.HasSuffix(s, `" two shoes`) || len(s) < 30 {
					t.Errorf("sent %q", *seen)
				}
			}
		})
	}
}

// A body that cannot be sent twice is sent once. The request is not changed, a given key is kept,
// and a safe method gets none. The number of tries is bounded.
func TestRetryingClient_Bounds(t *testing.T) {
	t.Parallel()
	client := &httpkey.RetryingClient{}
	send := func(method, url string, body io.Reader, key string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, url, body)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		response, err := client.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if r.Header.Get("Idempotency-Key") != key {
			t.Error("the request was changed")
		}
		return response.StatusCode
	}
	url, seen := script(t, status(503))
	if got := send("POST", url, io.MultiReader(strings.NewReader("once")), ""); got != 503 || len(*seen) != 1 {
		t.Errorf("%d after %q", got, *seen)
	}
	url, seen = script(t, status(503))
	if got := send("POST", url, strings.NewReader("x"), "mine"); got != 200 || fmt.Sprint(*seen) != "[mine x mine x]" {
		t.Errorf("%d after %q", got, *seen)
	}
	url, seen = script(t, status(503))
	if got := send("GET", url, nil, ""); got != 200 || fmt.Sprint(*seen) != "[   ]" {
		t.Errorf("%d after %q", got, *seen)
	}
	nowhere := &httpkey.RetryingClient{Base: failing{}, Tries: 3}
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://x", nil)
	before := failures.Load()
	if response, err := nowhere.RoundTrip(r); !errors.Is(err, errPlain) || failures.Load()-before != 3 {
		t.Errorf("%v, %v after %d tries", response, err, failures.Load()-before)
	}
}

var failures atomic.Int64

type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) {
	failures.Add(1)
	return nil, errPlain
}

// Against our own handler: responses are lost on the way back, and the caller does not notice.
func TestRetryingClient_EndToEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	door := httpkey.Once(b.pool, tenant, httpkey.Options{Hooks: b.hooks()}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error { return place(w, r, tx) })
	lost := 0
	s := b.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		door.ServeHTTP(w, r)
		if lost++; lost < 3 {
			panic(http.ErrAbortHandler) // after the answer was stored, before it was sent
		}
	}))
	client := &http.Client{Transport: &httpkey.RetryingClient{}}
	response, err := client.Post(s.URL, "text/plain", strings.NewReader("a"))
	b.must(err)
	defer response.Body.Close()
	if response.StatusCode != 201 || response.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%v", response)
	}
	b.wantOrders(1)
}
