package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func newStale() *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:   "stale",
		Short: "List everything that waits for a decision or a worker, with the next step",
		Args:  noArgs,
		Long: `Lists commands, steps and jobs that continue only after you decide, or after a worker notices that their attempt has ended. It changes
nothing.

  unknown      its outcome is not known: find out, then settle it
  orphaned     a call without a response, which no attempt will follow up
  dead_letter  it is not retried: pawl dlq
  abandoned    its attempt has ended; the next claim or sweep takes it`,
		Example: "  pawl stale\n  pawl stale --kind step --json | jq -r '.stale[].advice'",
	}
	cmd.Flags().StringVar(&kind, "kind", "", "only of this kind: command, step, job")
	return report[[]ops.Stale]{
		check: func(cmd *cobra.Command, _ []string) error {
			if kind != "" && !slices.Contains([]string{"command", "step", "job"}, kind) {
				return misused(cmd, "the kind is command, step or job", "leave --kind out for all")
			}
			return nil
		},
		read: func(ctx context.Context, conn *pgx.Conn, _ []string) ([]ops.Stale, error) {
			stale, err := ops.Stales(ctx, conn, kind, nil)
			for i := range stale {
				stale[i].Advice = adviceOn(stale[i])
			}
			return stale, err
		},
		json:  func(stale []ops.Stale) any { return map[string]any{"stale": stale} },
		print: printStale,
	}.on(cmd)
}

func printStale(cmd *cobra.Command, stale []ops.Stale) error {
	if len(stale) == 0 {
		progress(cmd)("nothing waits for a decision or a worker")
		return nil
	}
	rows := each(stale, func(s ops.Stale) []string {
		return []string{s.Kind, cell(s.Scope, nameWidth), cell(keyOf(s), nameWidth), s.Class, s.Since.UTC().Format(time.RFC3339), cell(s.Reason, errorWidth), text.Visible(s.Advice)}
	})
	return printTable(cmd.OutOrStdout(), []string{"KIND", "SCOPE", "KEY", "CLASS", "SINCE", "REASON", "ADVICE"}, rows)
}

// A standing is the part of [ops.Stale.Detail] that is printed.
type standing struct {
	Step        string
	Fence       int64
	ProviderKey string `json:"provider_key"`
	Code        string
	Crashes     int
	MessageKey  string `json:"message_key"`
}

func standingOf(s ops.Stale) (d standing) {
	_ = json.Unmarshal(s.Detail, &d) // missing members are empty
	return d
}

// keyOf returns the key of a row. For a job that is a stored delivery it is the job's id and the
// delivery's key.
func keyOf(s ops.Stale) string {
	if d := standingOf(s); d.MessageKey != "" {
		return s.Key + " (" + d.MessageKey + ")"
	}
	return s.Key
}

// adviceOn translates the advice of stale_classify into commands of this program.
func adviceOn(s ops.Stale) string {
	switch d := standingOf(s); s.Kind + " " + s.Class {
	case "command unknown":
		return fmt.Sprintf("it may have taken effect: find out, then: pawl commands settle %s %s executed|not_executed --fence %d --reason …", text.ShellWord(s.Scope), text.ShellWord(s.Key), d.Fence)
	case "step unknown":
		return fmt.Sprintf("ask the provider for %s, then: %s; or run step.Reconcile", d.ProviderKey,
			settleLine(ops.StepRef{Scope: s.Scope, Key: s.Key, Step: d.Step, Fence: d.Fence}))
	case "job unknown":
		return "settle its step: pawl stale --kind step"
	case "job dead_letter":
		if strings.HasPrefix(s.Advice, "step ") || strings.HasPrefix(s.Advice, "a call of step ") {
			return s.Advice + "; see: pawl dlq show " + s.Key
		}
		return adviceOnLetter(s.Key, d.Code, d.Crashes)
	}
	return s.Advice
}

// adviceOnLetter returns the next step for a dead letter with this last error and number of
// crashes.
func adviceOnLetter(id, code string, crashes int) string {
	retry, discard := "pawl dlq retry "+id+" --reason …", "pawl dlq discard "+id+" --reason …"
	switch pawl.Code(code) {
	case ops.CodeMismatch:
		return "it has a known key with another payload. The first took effect or has its own job, and a retry would run this one in addition: " +
			discard + ", unless you want both"
	case pawl.CodeDeliveryStale:
		return "it is older than the retention period, and may have taken effect: find out, then " + discard + ", or " + retry
	case pawl.CodeKeyReused:
		return "it made another request under a key or a step that it had used before, as after a change of build, and a retry by the same build meets that again. " +
			"Find out whether the first request took effect, then: " + discard + ", and enqueue what is still to be done under a new key"
	}
	if crashes > 0 {
		return fmt.Sprintf("its process died or froze %s while it ran. Its writes to this database were rolled back, but calls of other systems outside of "+
			"steps may have been executed: ask those systems first. If nothing happened: %s. If it did: %s", text.Plural(crashes, "time", "times"), retry, discard)
	}
	return "fix the cause, then " + retry + ", or " + discard
}
