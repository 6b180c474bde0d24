package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func newExplain() *cobra.Command {
	var scope string
	cmd := &cobra.Command{
		Use:   "explain KEY",
		Short: "Show the history of one key: the request, its jobs and calls, and changes by operators",
		Long: `Prints the history of a key in the order of time, from the rows and the audit. KEY is the key of a command, a delivery, a job or an
event, the id of a job or of a row of package guard, or the resource of a gate. Related rows are included: the job that stores a delivery, the calls of a job, the
events that a command appended under its key. Moments after now are still to come, such as a retry or the end of the retention.

It reads by indexes only, however large the tables are, and shows no payload: see pawl jobs show. An event without its own key has a
random id, which no index finds: see pawl outbox list.`,
		Args:    takes(1),
		Example: "  pawl explain order-17\n  pawl explain order-17 --scope orders/acme\n  pawl explain 4711 --json | jq '.moments[] | select(.kind == \"job\")'",
	}
	cmd.Flags().StringVar(&scope, "scope", "", "search only this: a command's scope, a consumer, a queue or a table of package guard (default: the first 500 of each)")
	elsewhere := ""
	return report[ops.Story]{
		read: func(ctx context.Context, conn *pgx.Conn, args []string) (ops.Story, error) {
			story, err := ops.Explain(ctx, conn, args[0], scope)
			if err == nil && !story.Known() {
				elsewhere, err = foundWith("scope", scope, func(other string) (string, error) {
					story, err := ops.Explain(ctx, conn, args[0], other)
					return strconv.Itoa(len(story.Moments)), err
				})
			}
			return story, err
		},
		json: func(s ops.Story) any {
			return struct {
				ops.Story
				Known bool `json:"known"`
			}{s, s.Known()}
		},
		print: printStory,
		verdict: func(cmd *cobra.Command, s ops.Story) error {
			if s.Known() {
				return nil
			}
			return failed(cmd, fmt.Errorf("nothing is known of %s; looked in: %s", s.Key, strings.Join(s.Looked, ", ")), cmp.Or(elsewhere, unknownKey(s)))
		},
	}.on(cmd)
}

func unknownKey(s ops.Story) string {
	if len(s.Beyond) > 0 {
		return "there are more " + strings.Join(s.Beyond, " and ") + " than were searched: add --scope"
	}
	return "it was never received, or its retention has passed; the key is the one that its sender chose"
}

func printStory(cmd *cobra.Command, s ops.Story) error {
	if !s.Known() {
		return nil
	}
	rows := each(s.Moments, func(m ops.Moment) []string {
		at := "-"
		if !m.At.IsZero() {
			at = when(m.At, s.ReadAt)
		}
		return []string{at, subject(m), text.Visible(m.Event), details(m.Detail)}
	})
	if err := printTable(cmd.OutOrStdout(), []string{"AT", "WHAT", "EVENT", "DETAIL"}, rows); err != nil {
		return err
	}
	for _, next := range nextSteps(s) {
		progress(cmd)("next: " + next)
	}
	if len(s.Beyond) > 0 {
		progress(cmd)("there may be more: " + unknownKey(s))
	}
	return nil
}

// subject names the row of a moment.
func subject(m ops.Moment) string {
	if m.Kind == "job" {
		return text.Visible(strings.TrimSpace("job " + m.Key + " " + m.Scope))
	}
	return text.Visible(m.Kind + " " + m.Scope + " " + m.Key)
}

// details prints the members of a JSON object in one line, sorted by name.
func details(object []byte) string {
	var out []string
	for _, m := range operator.Members(object) {
		out = append(out, m.Name+"="+m.Value)
	}
	return cmp.Or(shorten(text.Visible(strings.Join(out, " ")), 200), "-")
}

// nextSteps returns the possible next steps of an operator, without repetition.
func nextSteps(s ops.Story) (steps []string) {
	failed := map[string]string{} // code of each job's last error
	for _, m := range s.Moments {
		step := ""
		switch m.Kind + " " + m.Event {
		case "job failed":
			var e struct{ Code string }
			_ = json.Unmarshal(m.Detail, &e) // empty without one
			failed[m.Key] = e.Code
		case "job dead_letter":
			var d struct{ Crashes int }
			_ = json.Unmarshal(m.Detail, &d)
			step = "pawl dlq show " + m.Key + "; " + adviceOnLetter(m.Key, failed[m.Key], d.Crashes)
		case "job unknown":
			step = "settle its step: pawl steps list"
		case "job cancelled":
			step = "pawl jobs retry " + m.Key + ", or discard it"
		case "command unknown":
			step = fmt.Sprintf("find out whether it took effect, then: pawl commands settle %s %s executed|not_executed --fence %d --reason …", text.ShellWord(m.Scope), text.ShellWord(m.Key), fenceOf(m))
		case "step unknown":
			step = "ask the provider, then: " + settleLine(stepOf(m))
		case "step failed_final":
			step = "the refusal is stored; if it may be accepted now: " + againLine(stepOf(m)) + ", then retry its job, or make its row pending"
		case "gate held":
			step = fmt.Sprintf("an earlier number is missing: pawl sequence-gates list --consumer %s --held", text.ShellWord(m.Scope))
		}
		if step != "" && !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	return steps
}

func fenceOf(m ops.Moment) int64 {
	var d struct{ Fence int64 }
	_ = json.Unmarshal(m.Detail, &d)
	return d.Fence
}

func stepOf(m ops.Moment) ops.StepRef {
	var d struct{ Step string }
	_ = json.Unmarshal(m.Detail, &d)
	return ops.StepRef{Scope: m.Scope, Key: m.Key, Step: d.Step, Fence: fenceOf(m)}
}
