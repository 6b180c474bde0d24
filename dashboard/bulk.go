package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

// allOf is the title of a bulk action: one verb for all dead letters that a filter selects.
func allOf(a operator.Verb) string { return a.Title + " all of these" }

// bulkNames are the parameters of a filter.
var bulkNames = []string{"queue", "kind", "error", "older_than"}

// bulkLinks lead from a list of dead letters to the bulk actions.
func (v *view) bulkLinks() verbs {
	if !v.Change {
		return nil
	}
	var parameters []any
	for _, name := range bulkNames {
		parameters = append(parameters, name, v.param(name))
	}
	var links verbs
	for _, a := range operator.All() {
		if a.Jobs != nil {
			links = append(links, verbLink{allOf(a), v.Link.To("all/"+a.Command, parameters...), a.Danger})
		}
	}
	return links
}

// questionAll adds the form of a bulk action with the result of a dry run: how many dead letters it
// affects, how many of them may take effect twice, and the first of them.
func (v *view) questionAll(a operator.Verb, problem string) error {
	s, err := v.selected(string(ops.StatusDeadLetter))
	if err != nil {
		return err
	}
	what := operator.Selection(s)
	v.Title = allOf(a) + ": " + what
	q := question{Address: v.Link.To("all/" + a.Command), What: what, Effect: "This happens to each of them. " + a.Effect, Title: allOf(a), Danger: a.Danger, Reason: v.param("reason"), Problem: problem,
		Back: v.Link.To("dead-letters"), NoDryRun: true}
	for _, name := range bulkNames {
		q.Hidden = append(q.Hidden, field{Name: name, Value: v.param(name)})
	}
	all, err := see(v, s.Count)
	if err != nil {
		v.add(note{Class: "notice", Text: "They could not be counted: " + err.Error()})
		all = -1
	} else {
		v.add(note{Class: "notice", Text: fmt.Sprintf("%s dead letters are selected now.", number(all))})
		q.Hidden = append(q.Hidden, field{Name: "selected", Value: strconv.Itoa(all)})
	}
	if a.Doubles {
		s.NoDoubles = true
		if safe, err := see(v, s.Count); err == nil && all > safe {
			v.add(note{Class: "notice", Text: fmt.Sprintf("%s of them may take effect a second time: they came under a known key with another payload, or later than is remembered, or their handler ended its transaction itself.", number(all-safe))})
			q.Inputs = append(q.Inputs, field{Name: "doubles", Label: "those", Value: v.param("doubles"), Options: []string{"leave out", "retry as well"}})
		}
	}
	v.add(q)
	s.NoDoubles, s.Limit = false, 10
	if found, err := see(v, s.List); err == nil {
		t := jobTable("The first 10 in the order of their ids")
		for _, j := range found.Rows {
			t.Rows = append(t.Rows, v.jobCells(j))
		}
		v.add(heading("The first of them"), t)
	}
	return nil
}

// beginAll begins a bulk action. It goes on if the browser leaves; a page shows its progress.
func (v *view) beginAll(a operator.Verb) (id string, err error) {
	s, err := v.selected(string(ops.StatusDeadLetter))
	if err != nil {
		return "", err
	}
	by := ops.By{Actor: v.User.Name, Reason: strings.TrimSpace(v.param("reason"))}
	if by.Reason == "" || v.param("mode") != "execute" {
		v.status = http.StatusUnprocessableEntity
		return "", v.questionAll(a, "Say why. The reason stands in the audit, at each of them.")
	}
	if more := v.more(s); a.Danger && more > 0 {
		v.status = http.StatusConflict
		return "", v.questionAll(a, fmt.Sprintf("Since you looked, %s more have come. Press again if you mean those, too.", number(more)))
	}
	s.After, s.NoDoubles = "", a.Doubles && v.param("doubles") != "retry as well"
	return v.begin(allOf(a), operator.Selection(s), func(ctx context.Context, progress func(ops.Tally)) (ops.Tally, error) {
		return a.Jobs(s, ctx, v.h.cfg.Operators, by, progress)
	})
}

// more returns by how many the selection has grown since the form was shown, or 0 if either count
// is unknown.
func (v *view) more(s ops.Jobs) int {
	seen, err := strconv.Atoi(v.param("selected"))
	if err != nil {
		return 0
	}
	now, err := see(v, s.Count)
	if err != nil {
		return 0
	}
	return max(now-seen, 0)
}

// begin starts a bulk action in the background and returns its id.
func (v *view) begin(title, what string, do func(ctx context.Context, progress func(ops.Tally)) (ops.Tally, error)) (id string, err error) {
	run := &bulkRun{id: rand.Text(), title: title, what: what, user: v.User.Name, began: time.Now()}
	run.state.Store(&bulkState{})
	ctx, stop := context.WithCancel(context.WithoutCancel(v.ctx()))
	run.stop = stop
	if err := v.h.bulk.keep(run); err != nil {
		stop()
		return "", err
	}
	v.h.cfg.Logger.InfoContext(v.ctx(), "dashboard: bulk action", "user", v.User.Name, "action", title, "what", what)
	go func() {
		defer stop()
		t, err := do(ctx, func(t ops.Tally) { run.state.Store(&bulkState{tally: t}) })
		run.state.Store(&bulkState{t, true, err})
	}()
	return run.id, nil
}

type bulkRun struct {
	id, title, what, user string

	began time.Time
	stop  func()
	state atomic.Pointer[bulkState]
}

type bulkState struct {
	tally ops.Tally
	ended bool
	err   error
}

// mostRuns bounds the bulk actions that are remembered. If all of them still run, no other starts.
const mostRuns = 20

// bulkRuns are the bulk actions of this process, newest last.
type bulkRuns struct {
	mu   sync.Mutex
	runs []*bulkRun
}

func (b *bulkRuns) keep(r *bulkRun) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.runs) >= mostRuns {
		oldest := slices.IndexFunc(b.runs, func(r *bulkRun) bool { return r.state.Load().ended })
		if oldest < 0 {
			return errors.New("too many bulk actions are running: wait until one has ended")
		}
		b.runs = slices.Delete(b.runs, oldest, oldest+1)
	}
	b.runs = append(b.runs, r)
	return nil
}

func (b *bulkRuns) get(id string) (*bulkRun, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.IndexFunc(b.runs, func(r *bulkRun) bool { return r.id == id }); i >= 0 {
		return b.runs[i], nil
	}
	return nil, fmt.Errorf("%w: this process knows no such bulk action: it was begun by another process, or before a restart. What was done is in the audit", pawl.ErrNotFound)
}

func run(v *view) error {
	if err := v.mayChange(); err != nil {
		return err
	}
	r, err := v.h.bulk.get(v.param("id"))
	if err != nil {
		return err
	}
	v.Title = r.title + ": " + r.what
	now := r.state.Load()
	t, failed := now.tally, now.err
	switch {
	case !now.ended:
		v.Refresh = 1
		of := ""
		if t.Matched > 0 {
			of = " of " + number(t.Matched)
		}
		v.add(note{Class: "notice", Text: number(t.Seen()) + of + " were looked at. It goes on if you leave this page."},
			stopForm{Address: v.Link.To("run"), ID: v.param("id")})
	case errors.Is(failed, context.Canceled):
		v.add(note{Class: "notice", Text: "It was stopped. What was done stays done.", Hint: "begin it again for the rest"})
	case failed != nil:
		v.add(note{Class: "trouble", Text: "It ended early: " + failed.Error(), Hint: "what was done stays done; begin it again for the rest"})
	default:
		v.add(note{Class: "done", Text: "It has ended."})
	}
	v.add(facts{{"selected when it began", figure(t.Matched)}, {"done", figure(t.Done)}, {"refused: changed by others meanwhile", figure(t.Refused)},
		{"gone meanwhile", figure(t.Absent)}, {"locked by an open transaction", figure(t.Locked)}, {"begun by", plain(r.user)}, {"begun", at(r.began)}},
		verbs{{Text: "Dead letters", Link: v.Link.To("dead-letters")}, {Text: "Audit", Link: v.Link.To("audit", "actor", r.user)}})
	return nil
}

type stopForm struct{ Address, ID string }

func (stopForm) Kind() string { return "stop" }

// stopRun stops a bulk action after its current transaction.
func stopRun(v *view) (id string, err error) {
	running, err := v.h.bulk.get(v.param("id"))
	if err != nil {
		return "", err
	}
	running.stop()
	return v.param("id"), nil
}
