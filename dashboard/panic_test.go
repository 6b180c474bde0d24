package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/dashboard"
)

// If Authorize panics, the response is 500 and shows nothing.
func TestAuthorize_Panics(t *testing.T) {
	t.Parallel()
	b := setup(t, "", func(c *dashboard.Config) { c.Authorize = func(*http.Request) (dashboard.User, error) { panic("boom") } })
	if a := b.send(http.MethodGet, "jobs", nil); a.status != http.StatusInternalServerError || strings.Contains(a.body, "boom") {
		t.Errorf("answered %d %s", a.status, a.body)
	}
}

// If Redact panics, the payload is not shown.
func TestRedact_Panics(t *testing.T) {
	t.Parallel()
	b := setup(t, "", func(c *dashboard.Config) { c.Redact = func(dashboard.Payload) []byte { panic("boom") } })
	b.dead()
	a := b.get("payload?id=1")
	if strings.Contains(a.body, "secret") || !strings.Contains(a.body, "Redact: panic: boom") {
		t.Errorf("answered %d %s", a.status, a.body)
	}
}
