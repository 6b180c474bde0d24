package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/ops"
)

// An action is one verb of an operator. Its page says what it can cause and asks why; only a POST executes it.
type action struct {
	name   string // of the SQL function, as it stands in the audit
	title  string
	danger bool
	effect string   // what it can cause, in plain words
	names  []string // parameters that name the thing, and what was seen of it
	inputs []field  // what else it needs
	what   func(p parameters) string
	back   func(l link, p parameters) string
	do     func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error)
}

// parameters are those of a request.
type parameters func(name string) string

// A call is an action with the names of what it is about, for a link.
type call struct {
	name  string
	names []any // names and values in turn
}

// actions makes the links to actions; none, if the user may not change anything.
func (v *view) actions(all ...call) verbs {
	if !v.Change {
		return nil
	}
	var links verbs
	for _, c := range all {
		if a, known := actionNamed(c.name); known {
			links = append(links, verbLink{a.title, v.Link.To("do/"+a.name, c.names...), a.danger})
		}
	}
	return links
}

func actionNamed(name string) (action, bool) {
	for _, a := range actions {
		if a.name == name {
			return a, true
		}
	}
	return action{}, false
}

// maxForm bounds the form of an action.
const maxForm = 64 << 10

// mayChange returns why the user may not execute actions.
func (v *view) mayChange() error {
	switch {
	case v.h.cfg.Operators == nil:
		return fmt.Errorf("%w: this dashboard is read-only", errForbidden)
	case !v.User.MayChange:
		return fmt.Errorf("%w: you may only read", errForbidden)
	}
	return nil
}

// ask is the page before an action.
func (h *Handler) ask(a action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := h.view(page{pattern: "/do/" + a.name, title: a.title}, r)
		err := v.mayChange()
		if err == nil && v.param(a.names[0]) == "" {
			err = badParameter{a.names[0], "", "there: follow the link on the page of what you want to change"}
		}
		if err != nil {
			v.trouble(err)
		} else {
			v.add(v.question(a, ""))
		}
		v.write(w)
	}
}

// A question is the form of an action.
type question struct {
	Address, What, Effect, Title string
	Danger                       bool
	Hidden                       []field
	Inputs                       []field
	Reason, Problem, Back        string
	NoDryRun                     bool
}

func (question) Kind() string { return "question" }

func (v *view) question(a action, problem string) question {
	q := question{Address: v.Link.To("do/" + a.name), What: a.what(v.param), Effect: a.effect, Title: a.title, Danger: a.danger, Reason: v.param("reason"), Problem: problem,
		Back: a.back(v.Link, v.param)}
	for _, name := range a.names {
		q.Hidden = append(q.Hidden, field{Name: name, Value: v.param(name)})
	}
	for _, f := range a.inputs {
		f.Value = v.param(f.Name)
		q.Inputs = append(q.Inputs, f)
	}
	v.Title = a.title + ": " + q.What
	return q
}

// act executes an action, or says what it would do.
func (h *Handler) act(a action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		v := h.view(page{pattern: "/do/" + a.name, title: a.title}, r)
		if err := v.execute(a); err != nil {
			v.trouble(err)
		}
		v.write(w)
	}
}

func (v *view) execute(a action) error {
	if err := v.mayChange(); err != nil {
		return err
	}
	if err := v.readForm(); err != nil {
		return err
	}
	by, dry := ops.By{Actor: v.User.Name, Reason: strings.TrimSpace(v.param("reason"))}, v.param("mode") != "execute"
	if dry {
		by = ops.DryRun
	} else if by.Reason == "" {
		v.status = http.StatusUnprocessableEntity
		v.add(v.question(a, "Say why. The reason stands in the audit."))
		return nil
	}
	r, err := a.do(v.ctx(), v.h.cfg.Operators, v.param, by)
	if err != nil && verdict.IsBusy(pawl.CodeOf(err)) {
		err = errors.New("an open transaction has it locked: try again when that has ended")
	}
	q := v.question(a, "")
	if err != nil {
		var bad badParameter
		if errors.As(err, &bad) || errors.Is(err, pawl.ErrArgumentInvalid) {
			v.status = http.StatusUnprocessableEntity
			q.Problem = err.Error()
			v.add(q)
			return nil
		}
		v.trouble(err)
		if !dry && unanswered(err) {
			v.add(note{Class: "notice", Text: "The reply of the database was lost. The change may have been made.", Hint: "look at it, and at the audit, before you press again"},
				verbs{{Text: "Back", Link: q.Back}, {Text: "Audit", Link: v.Link.To("audit", "actor", v.User.Name, "verb", a.name)}})
		}
		return nil
	}
	if !dry {
		v.h.cfg.Logger.InfoContext(v.ctx(), "dashboard: action", "user", v.User.Name, "verb", a.name, "what", q.What, "outcome", r.Outcome)
	}
	v.add(v.outcome(a, q, r, dry)...)
	return nil
}

// unanswered reports whether a change may have been made all the same: there was a connection to send it on, and no refusal came back.
func unanswered(err error) bool {
	var connect *pgconn.ConnectError
	var refused *pgconn.PgError
	return !errors.As(err, &connect) && (!errors.As(err, &refused) || refused.SeverityUnlocalized != "ERROR")
}

// readForm makes the parameters those of the form. None is taken from the address.
func (v *view) readForm() error {
	if err := v.request.ParseForm(); err != nil {
		return badParameter{"form", "", fmt.Sprintf("a form of at most %s", octets(maxForm))}
	}
	v.given = v.request.PostForm
	return asText(v.given)
}

// outcome says what an action did, or would do.
func (v *view) outcome(a action, q question, r ops.Result, dry bool) []block {
	said := note{Class: "done", Text: fmt.Sprintf("%s: %s.", q.What, r.Outcome)}
	if dry {
		said = note{Class: "quiet", Text: fmt.Sprintf("Dry run: nothing was changed. %s would be: %s.", q.What, r.Outcome)}
	}
	if !r.Changed() {
		said.Class, said.Hint = "notice", r.Hint
		if !dry {
			said.Text = fmt.Sprintf("Nothing was changed. %s: %s.", q.What, r.Outcome)
		}
	}
	about := facts{}
	if r.Was != "" {
		about = append(about, fact{"it was", plain(r.Was)})
	}
	if r.Now != "" {
		about = append(about, fact{"it is now", plain(r.Now)})
	}
	if r.JobID != 0 {
		about = append(about, fact{"job", linked(r.JobID, v.Link.Job(r.JobID))})
	}
	blocks := []block{said, about, verbs{{Text: "Back", Link: q.Back}}}
	if dry {
		blocks = append(blocks, q)
	}
	return blocks
}
