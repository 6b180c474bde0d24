package main

import (
	"context"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// A lost response leads to one payment, under the step's key. A declined card is a row after one
// call, and its job is done. Another refusal is a dead letter, and no row.
func TestRun(t *testing.T) {
	s := &stub{keys: map[string]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	url := pawltest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	ask := func(query string) (text string) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), query).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	orders, err := os.ReadFile("orders.sql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), string(orders)+`select pawl_v1.job_enqueue('payments', 'charge', '{"order": "order-19", "cents": 1250, "card": "pm_other"}')`); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, url, client("sk_test_1", server.URL)) }()
	patience.Until(t, "one job is left, a dead letter", func() bool {
		return ask("select coalesce(string_agg(concat_ws(' ', convert_from(j.payload, 'UTF8')::jsonb ->> 'order', j.status), ', '), '') from pawl.job as j") == "order-19 dead_letter"
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for query, want := range map[string]string{
		"select string_agg(concat_ws(' | ', p.order_id, p.intent, p.declined), ', ' order by p.order_id) from payment as p": "order-17 | pi_order-17 | , order-18 |  | Your card was declined.",
		`select string_agg(concat_ws(' ', e.status, e.reference, e.failure_code, c.requests), ', ' order by e.job_id)
  from pawl.step as e, lateral (select string_agg(coalesce(c.detail -> 'exchange' ->> 'request_id', '-'), ' ' order by c.fence) as requests
                                    from pawl.step_call as c where c.key = e.key) as c`: "succeeded pi_order-17 - req_order-17, failed_final card_error req_order-18, failed_final http_400 req_order-19",
	} {
		if got := ask(query); got != want {
			t.Errorf("%s:\n%s, want\n%s", query, got, want)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Join(s.made, " ") != "order-17" || len(s.keys) != 3 {
		t.Errorf("made %v, keys %v", s.made, s.keys)
	}
}
