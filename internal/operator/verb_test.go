package operator

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/ops"
)

// Each entry has its texts, names are unique, and each field has a type that can be parsed.
func TestTable_IsComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, v := range All() {
		if seen[v.Name] {
			t.Errorf("%s stands twice", v.Name)
		}
		seen[v.Name] = true
		if v.Title == "" || v.Effect == "" || v.Command == "" || (v.Do == nil) == (v.Job == nil) || (v.Jobs == nil) != (v.Outcome == "") {
			t.Errorf("%s lacks something: %+v", v.Name, v)
		}
		names := map[string]bool{}
		for _, f := range v.Fields() {
			if names[f.Name] {
				t.Errorf("%s has two fields %s", v.Name, f.Name)
			}
			names[f.Name] = true
		}
	}
}

// A job offers the verbs that its status allows, as in the figure of package ops. A waiting job
// could be discarded, but must be cancelled first.
func TestRow_OfAJobOffersWhatItsStatusAllows(t *testing.T) {
	t.Parallel()
	for _, status := range ops.JobStatuses() {
		var offered []string
		for _, v := range Job(ops.Job{ID: 1, Status: status}).Verbs() {
			offered = append(offered, v.Command)
		}
		want := map[ops.Status]string{ops.StatusPending: "retry cancel discard", ops.StatusWaiting: "cancel", ops.StatusProcessing: "cancel",
			ops.StatusDeadLetter: "retry discard", ops.StatusCancelled: "retry discard"}[status]
		if got := strings.Join(offered, " "); got != want {
			t.Errorf("%s: %q, want %q", status, got, want)
		}
	}
}

// A value that does not fit is refused and never treated as absent, because absent means any. A
// form must give the seen values; a command may omit them.
func TestWrong_TakesNothingForAny(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verb, field, value string
		form, command      bool // it is refused
	}{
		{"job_retry", "id", "0", true, true}, {"job_retry", "id", "", true, true}, {"job_retry", "fence", "", true, false}, {"job_retry", "fence", "seven", true, true}, {"job_retry", "fence", "0", false, false},
		{"lane_unblock", "head", "", true, false}, {"lane_unblock", "head", "0", true, true}, {"lane_unblock", "head", "1 ", true, true},
		{"lane_policy", "policy", "", true, true}, {"lane_policy", "policy", "drop", true, true},
		{"schedule_run_now", "record", "", true, false}, {"schedule_run_now", "record", "none", true, true},
		{"inbox_forget", "processed_at", "", true, false}, {"inbox_forget", "processed_at", "today", true, true}, {"inbox_forget", "processed_at", "none", false, false},
		{"inbox_forget", "processed_at", "2026-11-21T12:00:00.123456Z", false, false},
		{"step_settle", "fence", "0", true, true}, {"step_settle", "outcome", "perhaps", true, true}, {"step_again", "provider_key", "", false, false},
		{"sequence_gate_release", "next_held", "", false, false}, {"sequence_gate_release", "next_held", "none", true, true},
		{"sequence_gate_reset", "last", "", true, false}, {"sequence_gate_reset", "last", "none", false, false}, {"sequence_gate_reset", "to", "", true, true}, {"sequence_gate_reset", "to", "-1", false, false},
	} {
		v := Named(c.verb)
		p := func(name string) string {
			i := slices.IndexFunc(v.Fields(), func(f Field) bool { return f.Name == name })
			switch f := v.Fields()[i]; {
			case name == c.field:
				return c.value
			case len(f.Options) > 0:
				return f.Options[0]
			case f.Type == Time:
				return "none"
			}
			return "1"
		}
		for form, want := range map[bool]bool{true: c.form, false: c.command} {
			var bad *BadValue
			err := v.Wrong(p, form)
			if got := errors.As(err, &bad) && bad.Field.Name == c.field; got != want || (err != nil) != want {
				t.Errorf("%s with %s %q, form %v: %v", c.verb, c.field, c.value, form, err)
			}
			if err := v.Wrong(p, false); err != nil {
				if _, got := v.Run(t.Context(), nil, p, ops.DryRun); !errors.As(got, &bad) {
					t.Errorf("%s with %s %q runs: %v", c.verb, c.field, c.value, got)
				}
			}
		}
	}
}
