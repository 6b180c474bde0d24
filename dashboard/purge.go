package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

var purgeFields = []field{
	{Name: "table", Label: "table", Options: ops.Tables()},
	{Name: "consumer", Label: "consumer (of inbox and delivery)"},
	{Name: "older_than", Label: "older than, as 720h (of inbox, delivery, replay and fence)"},
}

func (v *view) purgeLink() verbs {
	if !v.Change {
		return nil
	}
	return verbs{{operator.Purge.Title, v.Link.To("all/purge"), true}}
}

func (v *view) purgeQuestion(problem string) question {
	q := question{Address: v.Link.To("all/purge"), What: "what need not be remembered any more", Effect: operator.Purge.Effect + " This is for what neither of them runs for any more.", Title: operator.Purge.Title, Danger: true, Reason: v.param("reason"), Problem: problem,
		Back: v.Link.To("doctor")}
	for _, f := range purgeFields {
		f.Value = v.param(f.Name)
		q.Inputs = append(q.Inputs, f)
	}
	return q
}

func (v *view) purgeRule() (r ops.PurgeRule, err error) {
	r = ops.PurgeRule{Table: v.param("table"), Consumer: v.param("consumer")}
	if age := v.param("older_than"); age != "" {
		if r.OlderThan, err = time.ParseDuration(age); err != nil || r.OlderThan <= 0 {
			return r, badParameter{"older_than", age, "a duration above zero, such as 720h"}
		}
	}
	return r, r.Check()
}

// purge counts the rows that would be deleted, or begins a purge.
func purge(v *view) (id string, err error) {
	id, err = v.beginPurge()
	if errors.As(err, new(badParameter)) || errors.Is(err, pawl.ErrArgumentInvalid) {
		v.status = http.StatusUnprocessableEntity
		v.add(v.purgeQuestion(err.Error()))
		return "", nil
	}
	return id, err
}

func (v *view) beginPurge() (id string, err error) {
	rule, err := v.purgeRule()
	if err != nil {
		return "", err
	}
	what := "table " + rule.Table
	if rule.Consumer != "" {
		what += " of consumer " + rule.Consumer
	}
	by := ops.By{Actor: v.User.Name, Reason: strings.TrimSpace(v.param("reason"))}
	if v.param("mode") != "execute" {
		t, err := see(v, func(ctx context.Context, db pawl.DB) (ops.Tally, error) {
			return operator.Purge.Do(ctx, db, rule, ops.DryRun, nil)
		})
		if err != nil {
			return "", err
		}
		v.add(note{Class: "quiet", Text: fmt.Sprintf("Dry run: nothing was changed. %s rows of %s would go now.", number(t.Matched), what)}, v.purgeQuestion(""))
		return "", nil
	}
	if by.Reason == "" {
		v.status = http.StatusUnprocessableEntity
		v.add(v.purgeQuestion("Say why. The reason stands in the audit."))
		return "", nil
	}
	return v.begin(operator.Purge.Title, what, func(ctx context.Context, progress func(ops.Tally)) (ops.Tally, error) {
		return operator.Purge.Do(ctx, v.h.cfg.Operators, rule, by, progress)
	})
}
