package dashboard

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/operator"
)

// A Handler serves the dashboard. Its links are relative, so you can mount it at any path with
// [http.StripPrefix]. It is safe for concurrent use.
type Handler struct {
	cfg    Config
	mux    *http.ServeMux
	origin *http.CrossOriginProtection
	reader reader
	bulk   bulkRuns
}

// New returns the dashboard of a database.
//
// Errors: [pawl.ErrArgumentInvalid] if Pool or Authorize is missing.
func New(c Config) (*Handler, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	c.Name = cmp.Or(c.Name, c.Pool.Config().ConnConfig.Database)
	h := &Handler{cfg: c, mux: http.NewServeMux(), origin: http.NewCrossOriginProtection(),
		reader: reader{pool: c.Pool, slots: make(chan struct{}, maxReads)}}
	for _, p := range pages {
		h.mux.HandleFunc("GET "+p.pattern, h.page(p))
	}
	for _, a := range operator.All() {
		h.form("/do/"+a.Name, a.Title, func(v *view) error { return v.ask(a) }, func(v *view) (string, error) { v.execute(a); return "", nil })
		if a.Jobs != nil {
			h.form("/all/"+a.Command, allOf(a), func(v *view) error { return v.questionAll(a, "") }, func(v *view) (string, error) { return v.beginAll(a) })
		}
	}
	h.form("/all/purge", operator.Purge.Title, func(v *view) error { v.add(v.purgeQuestion("")); return nil }, purge)
	h.form("/run", "Stop", nil, stopRun)
	h.mux.Handle("GET /assets/", assets())
	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guard(w.Header())
	if err := h.origin.Check(r); err != nil {
		h.refuse(w, r, http.StatusForbidden, "", err)
		return
	}
	var user User
	err := callback.Do("Authorize", func() (err error) {
		user, err = h.cfg.Authorize(r)
		return err
	})
	if callback.Panicked(err) {
		h.cfg.Logger.ErrorContext(r.Context(), "dashboard: Authorize panicked", "method", r.Method, "path", r.URL.Path, "error", err, "stack", callback.StackOf(err))
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		for name, values := range refusal.Header {
			w.Header()[http.CanonicalHeaderKey(name)] = values
		}
		h.refuse(w, r, refusal.Status, "", err)
		return
	}
	if err == nil && (user.Name == "" || len(user.Name) > 255) {
		err = errors.New("Authorize returned a user without a name, or with one of more than 255 octets")
	}
	if err != nil {
		h.refuse(w, r, http.StatusForbidden, "", err)
		return
	}
	if err := asText(r.URL.Query()); err != nil {
		h.refuse(w, r, http.StatusBadRequest, user.Name, err)
		return
	}
	// If the handler is mounted at /pawl, relative links of /pawl without the slash would lead
	// elsewhere.
	if r.URL.Path == "" {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		seeOther(w, path[strings.LastIndexByte(path, '/')+1:]+"/")
		return
	}
	h.mux.ServeHTTP(w, r.WithContext(withUser(r.Context(), user)))
}

// asText refuses parameters that cannot be a PostgreSQL text: invalid UTF-8 and NUL.
func asText(parameters url.Values) error {
	for name, values := range parameters {
		for _, value := range values {
			if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
				return badParameter{name, value, "text in UTF-8 without NUL"}
			}
		}
	}
	return nil
}

// seeOther redirects to a relative address. http.Redirect would make it absolute and lose the path
// where the handler is mounted.
func seeOther(w http.ResponseWriter, address string) {
	w.Header().Set("Location", address)
	w.WriteHeader(http.StatusSeeOther)
}

// guard sets headers against framing, content sniffing, caching and injected code. Sources: CSP
// Level 3, Fetch, HTML.
func guard(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY") // for browsers without frame-ancestors
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
}

// refuse answers without a page. It logs the reason and does not show it.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, status int, user string, err error) {
	if status < 300 || status > 499 {
		status = http.StatusForbidden
	}
	level, what := slog.LevelWarn, "dashboard: request refused"
	if status < 400 { // a redirect to or from a login page
		level, what = slog.LevelInfo, "dashboard: request redirected"
	}
	h.cfg.Logger.LogAttrs(r.Context(), level, what, slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.String("user", user), slog.Int("status", status), slog.Any("error", err))
	http.Error(w, http.StatusText(status), status)
}

const (
	maxReads    = 4               // connections that pages take at once
	readTimeout = 2 * time.Second // for one statement
)
