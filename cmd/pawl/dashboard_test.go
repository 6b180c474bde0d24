package main

import (
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

// The address that `pawl dashboard` prints logs one browser in. There a dead letter is found and
// retried with a reason, and the audit has it.
func TestDashboard_RetriesADeadLetter(t *testing.T) {
	t.Parallel()
	database := pawltest.URL(t)
	exec1(t, database, `insert into pawl.job (queue, kind, payload, status, attempts, fence, last_errors)
values ('orders', 'charge', 'x', 'dead_letter', 25, 3, '[{"at": "2026-01-01T00:00:00Z", "attempt": 25, "error": "no stock"}]')`)
	cmd := command(t, database, "dashboard", "--listen", "127.0.0.1:0", "--actor", "ann", "--json")
	var running struct{ URL, Login string }
	served := serve(t, cmd, &running)
	browser, other := newBrowser(t), &http.Client{}
	page := func(client *http.Client, address string, form url.Values) (int, string) {
		t.Helper()
		method := http.MethodGet
		if form != nil {
			method = http.MethodPost
		}
		return browse(t, client, method, address, form)
	}
	if status, body := page(browser, running.Login, nil); status != http.StatusOK || !strings.Contains(body, "dead letters") {
		t.Errorf("%d %s", status, body)
	}
	for _, address := range []string{running.URL, running.Login} {
		if status, _ := page(other, address, nil); status != http.StatusUnauthorized {
			t.Errorf("another browser at %s: %d", address, status)
		}
	}
	if _, body := page(browser, running.URL+"dead-letters", nil); !strings.Contains(body, "no stock") {
		t.Error(body)
	}
	if _, body := page(browser, running.URL+"do/job_retry", url.Values{"id": {"1"}, "fence": {"3"}, "reason": {"stock is back"}, "mode": {"execute"}}); !strings.Contains(body, "retried") {
		t.Error(body)
	}
	if record := one[string](t, database, "select a.actor || ', ' || a.verb || ', ' || a.reason from pawl.audit as a"); record != "ann, job_retry, stock is back" {
		t.Errorf("the audit says %s", record)
	}
	wantFailure(t, pawl(t, database, "dashboard", "--listen", strings.Split(running.URL, "/")[2]), 1, "address already in use", "--listen")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(served.stderr.String(), "works once") {
		t.Errorf("%v: %s", err, served.stderr)
	}
}

func TestDashboard_Refusals(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"0.0.0.0:8484", "10.1.2.3:80", "localhost:1", ":8484", "127.0.0.1", "nowhere"} {
		wantFailure(t, pawl(t, "postgres://localhost:1/x", "dashboard", "--listen", listen), 2, "is not a loopback address", "127.0.0.1:8484")
	}
	wantFailure(t, pawl(t, "", "dashboard"), 2, "no database", "PAWL_DATABASE_URL")
	wantFailure(t, pawl(t, "postgres://localhost:1/x", "dashboard", "--actor", strings.Repeat("x", 256)), 2, "--actor")
	wantFailure(t, pawl(t, empty(t), "dashboard", "--listen", "127.0.0.1:0"), 1, "pawl migrate up")
}
