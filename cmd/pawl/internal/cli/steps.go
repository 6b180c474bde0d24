package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func newSteps() *cobra.Command {
	cmd := group("steps", "Look at calls of other systems, and settle those of unknown outcome")
	cmd.Long = `A step is a call of another system by a job or command. If its outcome is unknown, it is not called again, and its job and the job's
lane wait until you settle it.`
	cmd.Example = `  pawl steps list
  pawl steps show job/pay 17@1795285193170792 charge
  pawl steps settle job/pay 17@1795285193170792 charge executed --fence 41 --reference ch_3Mq --reason 'seen in their dashboard' --yes
  pawl steps again job/pay 17@1795285193170792 charge --fence 41 --reason 'the customer has a new card' --yes`
	cmd.AddCommand(newStepsList(), newStepsShow())
	addVerbs(cmd, operator.Steps)
	return cmd
}

func newStepsList() *cobra.Command {
	var s ops.Steps
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List steps, by scope, key and step; by default the unknown ones",
		Long:    "List steps, by scope, key and step; by default the unknown ones. A step that was executed is succeeded, one that the provider\nrefused is failed_final, and one that may still be called is planned.",
		Example: "  pawl steps list\n  pawl steps list --provider stripe --json | jq -r '.steps[].provider_key'\n  pawl steps list --scope job/pay --status planned",
	}
	flags := cmd.Flags()
	flags.StringVar(&s.Scope, "scope", "", "only of this scope")
	flags.StringVar(&s.Key, "key", "", "only of this key")
	flags.StringVar(&s.Provider, "provider", "", "only of this provider")
	return list[ops.Step]{name: "steps", none: "no such steps: without --status only unknown ones are listed", row: stepCells, flag: "scope", named: &s.Scope,
		heading: []string{"SCOPE", "KEY", "STEP", "STATUS", "FENCE", "RECOVERY", "PROVIDER", "CALLS", "IN DOUBT", "JOB", "SINCE", "REFERENCE"},
		check:   addStatusFlag(cmd, &s.Statuses, ops.StepStatuses(), "unknown"),
		read:    func() pager[ops.Step] { return s.List },
	}.on(cmd, &s.Limit, &s.After)
}

func stepCells(s ops.Step) []string {
	return []string{text.Visible(s.Scope), text.Visible(s.Key), text.Visible(s.Step), string(s.Status), strconv.FormatInt(s.Fence, 10), s.Recovery, cell(s.Provider, nameWidth),
		strconv.Itoa(s.Calls), strconv.Itoa(s.InDoubt), idCell(s.JobID), span(s.ReadAt.Sub(s.UpdatedAt)), cell(s.Reference, nameWidth)}
}

func idCell(id int64) string {
	if id == 0 {
		return "-"
	}
	return strconv.FormatInt(id, 10)
}

func newStepsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show SCOPE KEY STEP",
		Short:   "Show all of a step: each call with its outcome, and changes by operators",
		Example: "  pawl steps show job/pay 17@1795285193170792 charge",
		Args:    takes(3),
	}
	return report[ops.Step]{
		read: func(ctx context.Context, conn *pgx.Conn, args []string) (ops.Step, error) {
			return ops.StepRef{Scope: args[0], Key: args[1], Step: args[2]}.Get(ctx, conn)
		},
		next:  func([]string) string { return "see: pawl steps list" },
		print: printed(stepText),
	}.on(cmd)
}

func stepText(s ops.Step) string {
	var out sheet
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			out.field(name, "%s", when(t, s.ReadAt))
		}
	}
	out.title("step %s of %s in %s", s.Step, s.Key, s.Scope)
	out.field("status", "%s", s.Status)
	out.field("fence", "%d", s.Fence)
	out.text("recovery", s.Recovery)
	out.text("provider", s.Provider)
	out.text("sent key", s.ProviderKey)
	out.text("reference", s.Reference)
	if s.JobID != 0 {
		out.field("job", "%d", s.JobID)
	}
	out.text("failure", failure(s.FailureCode, s.FailureMessage))
	at("created", s.CreatedAt)
	at("memory", s.MemoryEndsAt)
	out.field("calls", "%d, of which %d may or may not have been executed", s.Calls, s.InDoubt)
	out.lines(each(s.History, stepCallText))
	out.audit(s.Changes)
	switch s.Status {
	case ops.StatusUnknown:
		out.field("next", "ask the provider, then: %s", settleLine(s.Ref()))
	case ops.StatusFailedFinal:
		out.field("next", "the refusal is stored; if it may be accepted now: %s", againLine(s.Ref()))
	}
	return out.String()
}

// settleLine and againLine are the commands that settle the step shown.
func settleLine(r ops.StepRef) string { return stepLine("settle", r, " executed|refused|not_executed") }
func againLine(r ops.StepRef) string  { return stepLine("again", r, "") }

func stepLine(verb string, r ops.StepRef, verdict string) string {
	return fmt.Sprintf("pawl steps %s %s %s %s%s --fence %d --reason …", verb, text.ShellWord(r.Scope), text.ShellWord(r.Key), text.ShellWord(r.Step), verdict, r.Fence)
}

func stepCallText(c ops.StepCall) string {
	what, outcome := "call", "its end was not recorded; nothing was sent after "+c.NotAfter.UTC().Format(time.RFC3339)
	if c.Probe {
		what = "probe"
	}
	if c.Outcome != "" {
		outcome = fmt.Sprintf("%s after %v", c.Outcome, c.EndedAt.Sub(c.StartedAt).Round(time.Millisecond))
	}
	line := fmt.Sprintf("%s %s %d: %s", c.StartedAt.UTC().Format(time.RFC3339), what, c.Fence, outcome)
	if c.Reference != "" {
		line += ", " + c.Reference
	}
	if len(c.Detail) > len("{}") {
		line += ", " + string(c.Detail)
	}
	return text.Visible(line)
}
