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

// A RequestProof is an HTTP handler behind an Idempotency-Key to be proved, on databases of its own: however often a request comes, and
// wherever the process dies, the answer, your tables and what is enqueued must be as after one request that went well. What is compared
// is that of [Proof], and status, body, Content-Type and Location of the answer.
type RequestProof struct {
	// Schema are the scripts that make your tables, and the rows that the handler needs.
	Schema []string
	// Make makes the handler, with [httpkey.Once] or [httpkey.Leased] on the pool; for database/sql, use stdlib.OpenDBFromPool. It is called
	// when a process begins: for each database, and again after a death.
	Make func(*pgxpool.Pool) http.Handler
	// Request makes the request, anew each time it is sent. Without an Idempotency-Key it gets "proof".
	Request func() *http.Request
	// Ignore are more columns that are not compared, as "column" or "table.column"; of the answer "answer.status", "answer.body",
	// "answer.Content-Type" and "answer.Location". Default none.
	Ignore []string
	// Check is what else must hold afterwards, such as how often something outside was called. It is called once for each database.
	// Optional.
	Check func(testing.TB, *pgxpool.Pool)
}

func (p RequestProof) provedCase() provedCase {
	return provedCase{
		schema: p.Schema, ignore: p.Ignore, check: p.Check,
		begin: func(_ context.Context, _ *trial, of *process) (life, error) {
			h := p.Make(of.yours)
			return func(ctx context.Context) (contents, error) {
				of.running.RLock()
				defer of.running.RUnlock()
				return p.send(ctx, h)
			}, nil
		},
		advice: "what the handler writes must go through the transaction that it is handed, in a leased one through Attempt.Commit; what it calls outside " +
			"belongs into a step of package step, of a route whose Lease is Repeatable, or into a job that it enqueues in the transaction",
		idle: "did the handler get the pool that was handed to Make?",
	}
}

// mostSends bounds how often a request is sent that is answered 5xx.
const mostSends = 20

// send is what a caller does: the same request again until there is an answer that stays.
func (p RequestProof) send(ctx context.Context, h http.Handler) (contents, error) {
	for n := 1; ; n++ {
		w, err := p.try(h)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil && w.Code < 500 && w.Header().Get("Retry-After") == "":
			return answered(map[string]string{"status": fmt.Sprint(w.Code), "body": w.Body.String(),
				"Content-Type": w.Header().Get("Content-Type"), "Location": w.Header().Get("Location")}), nil
		case err == nil && w.Code >= 500 && n >= mostSends:
			err = fmt.Errorf("the request was sent %d times, and is answered %d: %s", n, w.Code, strings.TrimSpace(w.Body.String()))
			return nil, err
		case err != nil && n >= mostSends:
			return nil, err
		}
		if !pace.Sleep(ctx, 10*time.Millisecond) {
			return nil, fmt.Errorf("the request is still answered %d: %s", w.Code, strings.TrimSpace(w.Body.String()))
		}
	}
}

// try sends the request once. A panic leaves it without an answer, as net/http has it.
func (p RequestProof) try(h http.Handler) (w *httptest.ResponseRecorder, err error) {
	r := p.Request()
	if r.Header.Get(httpkey.KeyHeader) == "" {
		r.Header.Set(httpkey.KeyHeader, "proof")
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
