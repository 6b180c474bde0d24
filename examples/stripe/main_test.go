package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// fake implements the part of Stripe that the test needs: payment intents by key. It loses the
// first response to each key.
type fake struct {
	mu       sync.Mutex
	keys     map[string]int // number of requests by key
	made     []string
	declined string // order whose card is declined
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = r.ParseForm()
	key, order := r.Header.Get("Idempotency-Key"), r.PostForm.Get("metadata[order]")
	f.keys[key]++
	w.Header().Set("Request-Id", "req_"+order)
	if order == f.declined {
		w.WriteHeader(http.StatusPaymentRequired)
		fmt.Fprint(w, `{"error": {"type": "card_error", "code": "card_declined", "message": "Your card was declined."}}`)
		return
	}
	if f.keys[key] == 1 {
		f.made = append(f.made, order)
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, `{"id": "pi_%s", "object": "payment_intent", "status": "succeeded"}`, order)
}

// A lost response leads to one payment, under the step's key. A declined card is a dead letter
// after one call.
func TestRun(t *testing.T) {
	f := &fake{keys: map[string]int{}, declined: "order-18"}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	url := pawltest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, order := range []string{"order-17", f.declined} {
		if _, err := conn.Exec(t.Context(), "select pawl_v1.job_enqueue('payments', 'charge', convert_to($1, 'UTF8'))",
			fmt.Sprintf(`{"order": %q, "cents": 1250}`, order)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, url, client("sk_test_1", server.URL)) }()
	var jobs string
	patience.Until(t, "one job is left, a dead letter", func() bool {
		if err := conn.QueryRow(t.Context(), "select coalesce(string_agg(j.status, ' '), '') from pawl.job as j").Scan(&jobs); err != nil {
			t.Fatal(err)
		}
		return jobs == "dead_letter"
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var steps string
	if err := conn.QueryRow(t.Context(), `select string_agg(concat_ws(' ', e.status, e.reference, e.failure_code, c.requests), ', ' order by e.job_id)
  from pawl.step as e, lateral (select string_agg(coalesce(c.detail -> 'exchange' ->> 'request_id', '-'), ' ' order by c.fence) as requests
                                    from pawl.step_call as c where c.key = e.key) as c`).Scan(&steps); err != nil {
		t.Fatal(err)
	}
	if want := "succeeded pi_order-17 - req_order-17, failed_final card_declined req_order-18"; steps != want || jobs != "dead_letter" {
		t.Errorf("steps %q, want %q; jobs %q", steps, want, jobs)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.Join(f.made, " ") != "order-17" || len(f.keys) != 2 {
		t.Errorf("made %v, keys %v", f.made, f.keys)
	}
}
