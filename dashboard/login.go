package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// A Login authorizes one browser, for a dashboard on your own machine: the first browser that opens
// the address with the token. Set its Authorize in [Config] and wrap the handler with Mount. It
// refuses requests whose Host is not a loopback name, which prevents DNS rebinding. The session
// ends after 12 hours.
type Login struct {
	user User
	path string

	mu      sync.Mutex
	token   string // "" after it was used
	session string
	ends    time.Time
}

const (
	tokenParameter = "token"
	sessionCookie  = "pawl_session_" // and the port, so that two dashboards have two cookies
	sessionLimit   = 12 * time.Hour
)

// NewLogin returns a login for this user, with a new token and a new path.
func NewLogin(user User) *Login {
	return &Login{user: user, path: "/" + rand.Text() + "/", token: rand.Text(), session: rand.Text()}
}

// Path is the secret path of Mount, as in "/ABC…/". Browsers send a cookie to all ports of a host,
// where programs of other users may listen, but only with requests below the cookie's path.
func (l *Login) Path() string { return l.path }

// Mount serves a handler below [Login.Path], and nothing elsewhere.
func (l *Login) Mount(next http.Handler) http.Handler {
	pages := http.NewServeMux()
	pages.Handle(l.path, http.StripPrefix(strings.TrimSuffix(l.path, "/"), next))
	pages.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "open the address that was printed at the start, with its path", http.StatusNotFound)
	})
	return pages
}

// Query returns the query of the first request, "?token=…". It works once.
func (l *Login) Query() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return "?" + tokenParameter + "=" + l.token
}

// Authorize recognizes the browser by its session cookie. For a request with the token it sets the
// cookie and redirects to the same page without the token.
func (l *Login) Authorize(r *http.Request) (User, error) {
	if !loopback(r.Host) {
		return User{}, errors.New("the request names the host " + r.Host + ", which is not this machine's loopback address")
	}
	for _, c := range r.Cookies() {
		if !strings.HasPrefix(c.Name, sessionCookie) || subtle.ConstantTimeCompare([]byte(c.Value), []byte(l.session)) != 1 {
			continue
		}
		if l.over() {
			return User{}, &Refusal{Status: http.StatusUnauthorized, Err: fmt.Errorf("the session has ended, after %d hours: start the command again", int(sessionLimit.Hours()))}
		}
		return l.user, nil
	}
	if !l.redeem(r.URL.Query().Get(tokenParameter)) {
		return User{}, &Refusal{Status: http.StatusUnauthorized, Err: errors.New("no session: open the address that was printed at the start; it works once, so start the command again for another browser")}
	}
	_, port, _ := net.SplitHostPort(r.Host) // "" is port 80
	cookie := http.Cookie{Name: sessionCookie + port, Value: l.session, Path: "/", MaxAge: int(sessionLimit.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if strings.HasPrefix(r.RequestURI, l.path) {
		cookie.Path = l.path
	}
	rest := r.URL.Query()
	rest.Del(tokenParameter)
	here := url.URL{Path: "./" + r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], RawQuery: rest.Encode()}
	return User{}, &Refusal{Status: http.StatusSeeOther, Err: errors.New("a browser has logged in"),
		Header: http.Header{"Set-Cookie": {cookie.String()}, "Location": {here.String()}}}
}

// redeem reports whether this is the token. The token is then used up.
func (l *Login) redeem(token string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(l.token)) != 1 {
		return false
	}
	l.token, l.ends = "", time.Now().Add(sessionLimit)
	return true
}

// over reports whether the session has ended.
func (l *Login) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !time.Now().Before(l.ends)
}

// loopback reports whether a Host header is a loopback name or address.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && address.IsLoopback()
}
