package dashboard_test

import (
	"errors"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dashboard"
)

// The token authorizes the first browser that sends it and no other. Requests with another Host are
// refused even with the session.
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

// Cookies go to all ports of a host. The login of one dashboard does not end another's.
func TestLogin_BesideAnother(t *testing.T) {
	t.Parallel()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := http.Client{Jar: jar}
	var all []*bed
	for range 2 {
		login := dashboard.NewLogin(operator)
		b := setup(t, "", func(c *dashboard.Config) { c.Authorize = login.Authorize })
		all = append(all, b)
		for _, address := range []string{b.url + login.Query(), all[0].url + "jobs"} {
			answer, err := browser.Get(address)
			if err != nil {
				t.Fatal(err)
			}
			if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
				t.Errorf("%s with %d dashboards: %d", address, len(all), answer.StatusCode)
			}
		}
	}
}

// Browsers send a cookie to all ports of a host, where programs of other users may listen. A
// mounted login's cookie does not reach them, since its path is secret and nothing else is served.
func TestLogin_OtherPortsGetNoSession(t *testing.T) {
	t.Parallel()
	login := dashboard.NewLogin(operator)
	// It sets a cookie as the dashboard does.
	board := httptest.NewServer(login.Mount(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var refusal *dashboard.Refusal
		if _, err := login.Authorize(r); errors.As(err, &refusal) {
			maps.Copy(w.Header(), refusal.Header)
			w.WriteHeader(refusal.Status)
		}
	})))
	t.Cleanup(board.Close)
	var seen []*http.Cookie
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = append(seen, r.Cookies()...) }))
	t.Cleanup(other.Close)
	jar, err := cookiejar.New(nil) // knows no ports, as browsers do
	if err != nil {
		t.Fatal(err)
	}
	browser := http.Client{Jar: jar}
	get := func(address string) int {
		t.Helper()
		answer, err := browser.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	for _, page := range []string{login.Path() + login.Query(), login.Path() + "jobs"} {
		if status := get(board.URL + page); status != http.StatusOK {
			t.Errorf("%s: %d", page, status)
		}
	}
	for _, page := range []string{"/", "/jobs", "/p/jobs", strings.ToLower(login.Path())} {
		if status := get(board.URL + page); status != http.StatusNotFound {
			t.Errorf("%s: %d", page, status)
		}
		get(other.URL + page)
	}
	if len(seen) > 0 {
		t.Errorf("another port was sent %v", seen)
	}
	if another := dashboard.NewLogin(operator); another.Path() == login.Path() || len(login.Path()) < 26 {
		t.Errorf("the path %s can be guessed", login.Path())
	}
}

// A session ends after twelve hours even if it is in use, and no token begins it again.
func TestLogin_TheSessionEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		login := dashboard.NewLogin(operator)
		ask := func(query, cookie string) error {
			r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:1"+login.Path()+query, nil)
			r.Header.Set("Cookie", cookie)
			_, err := login.Authorize(r)
			return err
		}
		var refusal *dashboard.Refusal
		query := login.Query()
		if err := ask(query, ""); !errors.As(err, &refusal) || refusal.Status != http.StatusSeeOther {
			t.Fatal(err)
		}
		given := refusal.Header.Get("Set-Cookie")
		if !strings.Contains(given, "Max-Age=43200") {
			t.Errorf("the browser keeps it: %s", given)
		}
		cookie, _, _ := strings.Cut(given, ";")
		time.Sleep(12*time.Hour - time.Second)
		if err := ask("", cookie); err != nil {
			t.Errorf("before the end: %v", err)
		}
		time.Sleep(time.Second)
		for _, query := range []string{"", query} {
			if err := ask(query, cookie); !errors.As(err, &refusal) || refusal.Status != http.StatusUnauthorized || !strings.Contains(err.Error(), "start the command again") {
				t.Errorf("after the end: %v", err)
			}
		}
	})
}
