package dashboard

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/pawl-go/pawl"
)

// A page is one kind of page: its address, its title and the function that fills it.
type page struct {
	pattern string // of http.ServeMux, without the method
	title   string
	menu    bool // listed in the menu
	live    bool // may refresh itself
	fill    func(*view) error
}

// pages are all pages, in the order of the menu.
var pages = []page{
	{"/{$}", "Overview", true, true, glanced(overview)},
	{"/queues", "Queues", true, true, glanced(queues)},
	{"/queue", "Queue", false, true, glanced(queue)},
	{"/jobs", "Jobs", true, false, jobs},
	{"/job", "Job", false, true, job},
	{"/payload", "Payload", false, false, payload},
	{"/dead-letters", "Dead letters", true, false, deadLetters},
	{"/lanes", "Lanes", true, false, lanes},
	{"/lane", "Lane", false, true, lane},
	{"/consumers", "Consumers", true, false, glanced(consumers)},
	{"/consumer", "Consumer", false, false, consumer},
	{"/delivery", "Delivery", false, false, delivery},
	{"/gates", "Sequence gates", true, false, gates},
	{"/gate", "Sequence gate", false, false, gate},
	{"/commands", "Commands", true, false, commands},
	{"/command", "Command", false, false, command},
	{"/steps", "Steps", true, false, steps},
	{"/step", "Step", false, false, step},
	{"/outbox", "Outbox", true, true, glanced(outbox)},
	{"/schedules", "Schedules", true, false, schedules},
	{"/schedule", "Schedule", false, false, schedule},
	{"/workers", "Workers", true, true, glanced(workers)},
	{"/doctor", "Doctor", true, false, diagnosis},
	{"/audit", "Audit", true, false, audit},
	{"/story", "Story", false, false, story},
	{"/run", "Bulk action", false, false, run},
}

// A view is one page of one request. The templates use its exported fields and methods.
type view struct {
	Page   page
	Title  string // default: that of the page's kind
	Name   string // of the dashboard
	User   User
	Link   link
	Blocks []block
	ReadAt time.Time // by the database's clock; zero if nothing was read
	Change bool      // the user may change things here

	Refresh int // seconds until the page loads itself again; 0 is never

	began   time.Time
	h       *Handler
	request *http.Request
	given   url.Values // not http.Request.Form, which reads multipart bodies with any method
	status  int
}

// Took returns the time since the request began.
func (v *view) Took() time.Duration { return time.Since(v.began) }

// Menu returns the pages of the menu.
func (v *view) Menu() (all []page) {
	for _, p := range pages {
		if p.menu {
			all = append(all, p)
		}
	}
	return all
}

// MenuTitle and Live give the templates fields of a page.
func (p page) MenuTitle() string { return p.title }
func (p page) Live() bool        { return p.live }

// Path returns the address of a page of the menu, without the leading slash.
func (p page) Path() string {
	if p.pattern == "/{$}" {
		return ""
	}
	return p.pattern[1:]
}

// param returns a parameter of the address, or of the form after readForm.
func (v *view) param(name string) string { return v.given.Get(name) }

func (v *view) ctx() context.Context { return v.request.Context() }

func see[T any](v *view, ask func(context.Context, pawl.DB) (T, error)) (T, error) {
	return read(v.ctx(), v.h.reader, ask)
}

func (h *Handler) view(p page, r *http.Request) *view {
	user := userOf(r.Context())
	return &view{Page: p, Title: p.title, Name: h.cfg.Name, User: user, Link: linkFrom(r.URL.Path), began: time.Now(),
		Change: user.MayChange && h.cfg.Operators != nil, h: h, request: r, given: r.URL.Query(), status: http.StatusOK}
}

func (h *Handler) page(p page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := h.view(p, r)
		if err := p.fill(v); err != nil {
			v.trouble(err)
		}
		v.write(w)
	}
}

// trouble makes the view show an error and its next step.
func (v *view) trouble(err error) {
	problem := note{Class: "trouble", Text: err.Error()}
	var e *pawl.Error
	if errors.As(err, &e) {
		problem.Hint = e.Hint
	}
	switch {
	case errors.Is(err, pawl.ErrNotFound):
		v.status = http.StatusNotFound
	case errors.Is(err, pawl.ErrArgumentInvalid), errors.Is(err, pawl.ErrKeyInvalid), errors.Is(err, pawl.ErrScopeInvalid), errors.As(err, new(badParameter)):
		v.status = http.StatusBadRequest
	case errors.Is(err, errForbidden):
		v.status = http.StatusForbidden
	case errors.Is(err, errSlow), errors.Is(err, errBusy):
		v.status = http.StatusServiceUnavailable
	case v.ctx().Err() != nil: // the browser has left
		v.status = http.StatusServiceUnavailable
	default:
		v.status = http.StatusInternalServerError
		v.h.cfg.Logger.ErrorContext(v.ctx(), "dashboard: page failed", "path", v.request.URL.Path, "user", v.User.Name, "error", err)
	}
	v.Page.live, v.Blocks = false, append(v.Blocks, problem)
}

// A badParameter is an invalid parameter, as of an address that was typed by hand.
type badParameter struct{ name, value, want string }

func (b badParameter) Error() string {
	return fmt.Sprintf("the parameter %s is %q: it must be %s", b.name, b.value, b.want)
}

var errForbidden = errors.New("you may not do this here")

func (v *view) write(w http.ResponseWriter) {
	var body bytes.Buffer
	name := "page"
	if v.request.Header.Get("X-Pawl-Part") == "main" { // a page that refreshes itself
		name = "main"
	}
	if err := templates.ExecuteTemplate(&body, name, v); err != nil {
		v.h.cfg.Logger.ErrorContext(v.ctx(), "dashboard: template failed", "page", v.Page.title, "error", err)
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(v.status)
	_, _ = body.WriteTo(w) // the browser may have left
}

//go:embed templates/*.html
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/*.html"))

type userKey struct{}

func withUser(ctx context.Context, u User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

func userOf(ctx context.Context) User {
	u, _ := ctx.Value(userKey{}).(User)
	return u
}
