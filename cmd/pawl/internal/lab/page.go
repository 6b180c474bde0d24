package lab

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dashboard"
)

//go:embed page.html assets
var files embed.FS

var templates = template.Must(template.New("").ParseFS(files, "page.html"))

// serve shows the lab and the dashboard of its database to one browser, until stop is called.
func (l *lab) serve(socket net.Listener, ready func(login, url string) error) (stop func(), err error) {
	login := dashboard.NewLogin(dashboard.User{Name: l.Actor, MayChange: true, MaySeePayloads: true})
	board, err := dashboard.New(dashboard.Config{Pool: l.pool, Operators: l.pool, Name: "crash lab", Authorize: login.Authorize, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	assets, err := fs.Sub(files, "assets")
	if err != nil {
		return nil, err
	}
	pages := http.NewServeMux()
	pages.HandleFunc("GET /{$}", l.page)
	pages.HandleFunc("GET /state", l.stateNow)
	pages.HandleFunc("GET /events", l.events)
	pages.HandleFunc("POST /press", l.press)
	pages.HandleFunc("POST /beside", l.chooses)
	pages.Handle("GET /assets/", http.StripPrefix("/assets/", http.FileServerFS(assets)))
	pages.Handle("/dashboard/", http.StripPrefix("/dashboard", board))
	server := &http.Server{Handler: login.Mount(guarded(login, http.NewCrossOriginProtection().Handler(pages))), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(socket) }()
	url := "http://" + socket.Addr().String() + login.Path()
	if err := ready(url+login.Query(), url); err != nil {
		_ = server.Close()
		return nil, err
	}
	return func() { _ = server.Close() }, nil
}

// guarded admits the browser with the token, and sets security headers.
func guarded(login *dashboard.Login, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		// the dashboard authorizes and sets headers itself
		if strings.HasPrefix(r.URL.Path, "/dashboard/") {
			next.ServeHTTP(w, r)
			return
		}
		if _, err := login.Authorize(r); err != nil {
			var refusal *dashboard.Refusal
			status := http.StatusForbidden
			if errors.As(err, &refusal) {
				status = refusal.Status
				for name, values := range refusal.Header {
					h[name] = values
				}
			}
			if status == http.StatusSeeOther {
				w.WriteHeader(status)
				return
			}
			http.Error(w, err.Error(), status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (l *lab) page(w http.ResponseWriter, _ *http.Request) {
	var body bytes.Buffer
	l.mu.Lock()
	chosen := l.stands[1].way
	l.mu.Unlock()
	view := struct {
		State   state
		Buttons []button
		Columns []button
		Ways    []way
		Beside  way
	}{l.now(), buttons, columns(), ways, chosen}
	if err := templates.ExecuteTemplate(&body, "page.html", view); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = body.WriteTo(w)
}

func (l *lab) stateNow(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(l.now())
}

func (l *lab) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	for {
		s, changed := l.watch()
		text, err := json.Marshal(s)
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
			return
		}
		if flush.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// press handles a button.
func (l *lab) press(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<10)
	done(w, r, l.apply(r.Context(), r.PostFormValue("fault"), r.PostFormValue("worker")))
}

// chooses lets another way stand beside Pawl.
func (l *lab) chooses(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<10)
	done(w, r, l.choose(r.Context(), r.PostFormValue("way")))
}

// done answers a form. Without JavaScript it redirects to the page.
func done(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Header.Get("Accept") == "application/json" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}
