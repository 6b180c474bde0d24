package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/ops"
)

// actions returns links to the verbs that an object allows, or none if the user may not change
// anything.
func (v *view) actions(row operator.Row) verbs {
	if !v.Change {
		return nil
	}
	var links verbs
	for _, verb := range row.Verbs() {
		var names []any
		for _, f := range slices.Concat(row.Noun.Fields, verb.Seen) {
			names = append(names, f.Name, row.Value(f.Name))
		}
		links = append(links, verbLink{verb.Title, v.Link.To("do/"+verb.Name, names...), verb.Danger})
	}
	return links
}

// maxForm bounds the form of an action.
const maxForm = 64 << 10

func (v *view) mayChange() error {
	switch {
	case v.h.cfg.Operators == nil:
		return fmt.Errorf("%w: this dashboard is read-only", errForbidden)
	case !v.User.MayChange:
		return fmt.Errorf("%w: you may only read", errForbidden)
	}
	return nil
}

// form serves an action: GET shows its form and only POST executes it. It checks the user's rights
// for all actions. act returns the id of a bulk action that goes on, or "" if the view has the
// result.
func (h *Handler) form(address, title string, ask func(*view) error, act func(*view) (run string, err error)) {
	serve := func(method string, do func(*view) (string, error)) {
		h.mux.HandleFunc(method+" "+address, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			v := h.view(page{pattern: address, title: title}, r)
			var run string
			err := v.mayChange()
			if err == nil && method == http.MethodPost {
				err = v.readForm()
			}
			if err == nil {
				run, err = do(v)
			}
			if err != nil {
				v.trouble(err)
			}
			if run != "" {
				seeOther(w, v.Link.To("run", "id", run))
				return
			}
			v.write(w)
		})
	}
	if ask != nil {
		serve(http.MethodGet, func(v *view) (string, error) { return "", ask(v) })
	}
	serve(http.MethodPost, act)
}

// ask shows the page before an action: what the verb can cause, and a field for the reason.
func (v *view) ask(a operator.Verb) error {
	first := a.Noun.Fields[0].Name
	if v.param(first) == "" {
		return badParameter{first, "", "there: follow the link on the page of what you want to change"}
	}
	v.add(v.question(a, ""))
	return nil
}

type question struct {
	Address, What, Effect, Title string
	Danger                       bool
	Hidden                       []field
	Inputs                       []field
	Reason, Problem, Back        string
	NoDryRun                     bool
}

func (question) Kind() string { return "question" }

func (v *view) question(a operator.Verb, problem string) question {
	q := question{Address: v.Link.To("do/" + a.Name), What: a.Noun.NameOf(v.param), Effect: a.Effect, Title: a.Title, Danger: a.Danger, Reason: v.param("reason"), Problem: problem}
	var names []any
	for _, f := range a.Noun.Fields {
		names = append(names, f.Name, v.param(f.Name))
	}
	q.Back = v.Link.To(a.Noun.Name, names...)
	for _, f := range slices.Concat(a.Noun.Fields, a.Seen) {
		q.Hidden = append(q.Hidden, field{Name: f.Name, Value: v.param(f.Name)})
	}
	for _, f := range a.Inputs {
		if !f.FlagOnly {
			q.Inputs = append(q.Inputs, field{Name: f.Name, Label: f.Label, Value: v.param(f.Name), Options: f.Options})
		}
	}
	v.Title = a.Title + ": " + q.What
	return q
}

// execute does an action, or a dry run of it.
func (v *view) execute(a operator.Verb) {
	by, dry := ops.By{Actor: v.User.Name, Reason: strings.TrimSpace(v.param("reason"))}, v.param("mode") != "execute"
	if dry {
		by = ops.DryRun
	} else if by.Reason == "" {
		v.status = http.StatusUnprocessableEntity
		v.add(v.question(a, "Say why. The reason stands in the audit."))
		return
	}
	q := v.question(a, "")
	r, err := v.do(a, by)
	if err != nil && verdict.IsBusy(pawl.CodeOf(err)) {
		err = errors.New(a.Noun.Locked + ": try again when that has ended")
	}
	if err != nil {
		var bad *operator.BadValue
		if errors.As(err, &bad) || errors.Is(err, pawl.ErrArgumentInvalid) {
			v.status = http.StatusUnprocessableEntity
			q.Problem = err.Error()
			v.add(q)
			return
		}
		v.trouble(err)
		if !dry && unanswered(err) {
			v.add(note{Class: "notice", Text: "The reply of the database was lost. The change may have been made.", Hint: "look at it, and at the audit, before you press again"},
				verbs{{Text: "Back", Link: q.Back}, {Text: "Audit", Link: v.Link.To("audit", "actor", v.User.Name, "verb", a.Name)}})
		}
		return
	}
	if !dry {
		v.h.cfg.Logger.InfoContext(v.ctx(), "dashboard: action", "user", v.User.Name, "verb", a.Name, "what", q.What, "outcome", r.Outcome)
	}
	v.add(v.outcome(q, r, dry)...)
}

// do executes the verb if the form is complete. It returns what it read of the object.
func (v *view) do(a operator.Verb, by ops.By) (r ops.Result, err error) {
	if err := a.Wrong(v.param, true); err != nil {
		return r, err
	}
	if a.Check != nil {
		if wrong, next := a.Check(v.param); wrong != "" {
			return r, &pawl.Error{Op: a.Name, Code: pawl.CodeArgumentInvalid, Err: errors.New(wrong), Hint: next}
		}
	}
	return a.Run(v.ctx(), v.h.cfg.Operators, v.param, by)
}

// unanswered reports whether the change may have been made although an error came back: the request
// was sent and the database did not refuse it.
func unanswered(err error) bool {
	var connect *pgconn.ConnectError
	var refused *pgconn.PgError
	return !errors.As(err, &connect) && (!errors.As(err, &refused) || refused.SeverityUnlocalized != "ERROR")
}

// readForm replaces the view's parameters by those of the form, and takes none from the address.
func (v *view) readForm() error {
	if err := v.request.ParseForm(); err != nil {
		return badParameter{"form", "", fmt.Sprintf("a form of at most %s", octets(maxForm))}
	}
	v.given = v.request.PostForm
	return asText(v.given)
}

// outcome shows what an action did, or would do.
func (v *view) outcome(q question, r ops.Result, dry bool) []block {
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
