package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/dashboard"
)

// The token lets in the first browser that brings it, and no other; requests that name another host are refused even with the session.
func TestLogin_TheTokenWorksOnce(t *testing.T) {
	t.Parallel()
	login := dashboard.NewLogin(operator)
	query := login.Query()
	var log strings.Builder
	b := setup(t, "", func(c *dashboard.Config) { c.Authorize, c.Logger = login.Authorize, loggerTo(&log) })
	for name, address := range map[string]string{"no token": "", "another token": "?token=x", "an empty token": "?token="} {
		if a := b.get(address); a.status != http.StatusUnauthorized || a.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %v", name, a.status, a.header)
		}
	}
	refused := strings.Count(log.String(), "request refused")
	first := b.get(query)
	if again := strings.Count(log.String(), "request refused"); refused != 3 || again != refused || !strings.Contains(log.String(), "level=INFO msg=\"dashboard: request redirected\"") {
		t.Errorf("the log does not tell a login from a refusal:\n%s", &log)
	}
	cookie := first.header.Get("Set-Cookie")
	if first.status != http.StatusSeeOther || first.header.Get("Location") != "./" || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") {
		t.Fatalf("%d %v", first.status, first.header)
	}
	if to := dashboard.NewLogin(operator); true {
		deep := setup(t, "/p", func(c *dashboard.Config) { c.Authorize = to.Authorize })
		if a := deep.get("job" + to.Query() + "&id=1"); a.header.Get("Location") != "./job?id=1" {
			t.Errorf("a page that was asked for with the token: %v", a.header)
		}
	}
	session, _, _ := strings.Cut(cookie, ";")
	if a := b.send(http.MethodGet, "jobs", nil, "Cookie", session); a.status != http.StatusOK {
		t.Errorf("with the session: %d", a.status)
	}
	if a := b.get(query); a.status != http.StatusUnauthorized {
		t.Errorf("the token again: %d", a.status)
	}
	if a := b.send(http.MethodGet, "jobs", nil, "Cookie", session+"x"); a.status != http.StatusUnauthorized {
		t.Errorf("another session: %d", a.status)
	}
	for host, want := range map[string]int{"evil.example": 403, "evil.example:80": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "": 200,
		"localhost:99": 200, "[::1]:99": 200, "127.0.0.2": 200, "0.0.0.0": 403, "10.0.0.1": 403} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"jobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Cookie", session)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("host %q: %d, want %d", host, response.StatusCode, want)
		}
	}
}

// A browser that two dashboards on one machine have let in stays logged in to both, though it sends each the cookies of the other.
func TestLogin_TwoOnOneHost(t *testing.T) {
	t.Parallel()
	one, two := dashboard.NewLogin(operator), dashboard.NewLogin(operator)
	boards := []*bed{setup(t, "", func(c *dashboard.Config) { c.Authorize = one.Authorize }), setup(t, "", func(c *dashboard.Config) { c.Authorize = two.Authorize })}
	first, _, _ := strings.Cut(boards[0].get(one.Query()).header.Get("Set-Cookie"), ";")
	second, _, _ := strings.Cut(boards[1].get(two.Query()).header.Get("Set-Cookie"), ";")
	if name, _, _ := strings.Cut(first, "="); strings.HasPrefix(second, name+"=") {
		t.Fatalf("both cookies are named %s", name)
	}
	for i, b := range boards {
		if a := b.send(http.MethodGet, "jobs", nil, "Cookie", first+"; "+second); a.status != http.StatusOK {
			t.Errorf("dashboard %d: %d", i+1, a.status)
		}
	}
}
