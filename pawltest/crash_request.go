package pawltest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/internal/pace"
)

// A RequestTest tests an HTTP handler behind an Idempotency-Key, on databases of its own. However
// often a request comes, and wherever the process dies, the response, your tables and the enqueued
// jobs must be as after one undisturbed request. The comparison is that of [HandlerTest], plus
// status, body, Content-Type and Location of the response.
type RequestTest struct {
	// Schema holds scripts that make your tables, and the rows that the handler needs.
	Schema []string
	// Make returns the handler, with [httpkey.Once] or [httpkey.Leased] on the pool, for
	// database/sql through stdlib.OpenDBFromPool. It is called for each database, and again after a
	// death.
	Make func(*pgxpool.Pool) http.Handler
	// Request returns a new request each time. Without an Idempotency-Key it gets the key "test".
	Request func() *http.Request
	// Ignore names columns that are not compared, as "column" or "table.column"; for the response
	// "response.status", "response.body", "response.Content-Type", "response.Location". Default
	// none.
	Ignore []string
	// Check tests what else must hold at the end, such as the number of calls of another system. It
	// is called once for each database. Optional.
	Check func(testing.TB, *pgxpool.Pool)
}

func (p RequestTest) crashCase() crashCase {
	return crashCase{
		schema: p.Schema, ignore: p.Ignore, check: p.Check,
		begin: func(_ context.Context, _ *trial, of *process) (life, error) {
			h := p.Make(of.yours)
			return func(ctx context.Context) (contents, error) {
				of.running.RLock()
				defer of.running.RUnlock()
				return p.send(ctx, h)
			}, nil
		},
		advice: "write rows only in the transaction that the handler gets, in a leased handler through Attempt.Commit; call other systems " +
			"in a step of package step, on a route whose Lease is Repeatable, or in a job that the handler enqueues in the transaction",
		idle: "did the handler use the pool passed to Make?",
	}
}

// mostSends bounds how often a request that is answered 5xx is sent.
const mostSends = 20

// send sends the request until it gets a final response, as a client does.
func (p RequestTest) send(ctx context.Context, h http.Handler) (contents, error) {
	for n := 1; ; n++ {
		w, err := p.try(h)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil && w.Code < 500 && w.Header().Get("Retry-After") == "":
			return responded(map[string]string{"status": fmt.Sprint(w.Code), "body": w.Body.String(),
				"Content-Type": w.Header().Get("Content-Type"), "Location": w.Header().Get("Location")}), nil
		case err == nil && w.Code >= 500 && n >= mostSends:
			err = fmt.Errorf("the request was sent %d times, and is still answered %d: %s", n, w.Code, strings.TrimSpace(w.Body.String()))
			return nil, err
		case err != nil && n >= mostSends:
			return nil, err
		}
		if !pace.Sleep(ctx, 10*time.Millisecond) {
			return nil, fmt.Errorf("the request is still answered %d: %s", w.Code, strings.TrimSpace(w.Body.String()))
		}
	}
}

// try sends the request once. A panic is an error without a response, as in net/http.
func (p RequestTest) try(h http.Handler) (w *httptest.ResponseRecorder, err error) {
	r := p.Request()
	if r.Header.Get(httpkey.KeyHeader) == "" {
		r.Header.Set(httpkey.KeyHeader, "test")
	}
	w = httptest.NewRecorder()
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the handler panicked: %v", cause)
		}
	}()
	h.ServeHTTP(w, r)
	return w, nil
}
