package cli

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/ops"
)

func newStale() *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:   "stale",
		Short: "List all that stands still until somebody decides or something notices, and what to do",
		Args:  noArgs,
		Long: `Lists commands, effects and jobs that go on only if somebody decides, or something notices that their attempt is gone. It changes nothing.

  unknown      nobody can tell whether it took effect: find out, then settle it
  orphaned     a call that went unanswered, and no attempt will follow it up
  dead_letter  nobody tries it again: pawl dlq
  abandoned    its attempt has gone; the next claim or sweep takes it`,
		Example: "  pawl stale\n  pawl stale --kind effect --json | jq -r '.stale[].advice'",
	}
	cmd.Flags().StringVar(&kind, "kind", "", "only of this kind: command, effect, job")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if kind != "" && !slices.Contains([]string{"command", "effect", "job"}, kind) {
			return misused(cmd, "the kind is command, effect or job", "leave --kind out for all")
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			stale, err := ops.Stales(ctx, conn, kind, nil)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), stalesJSON{each(stale, staleToJSON)})
			}
			return printStale(cmd, stale)
		})
	}
	return cmd
}

func printStale(cmd *cobra.Command, stale []ops.Stale) error {
	if len(stale) == 0 {
		progress(cmd)("nothing stands still")
		return nil
	}
	rows := make([][]string, len(stale))
	for i, s := range stale {
		rows[i] = []string{s.Kind, cell(s.Scope, nameWidth), cell(s.Key, nameWidth), s.Class, s.Since.UTC().Format(time.RFC3339), cell(s.Reason, errorWidth), visible(s.Advice)}
	}
	return printTable(cmd.OutOrStdout(), []string{"KIND", "SCOPE", "KEY", "CLASS", "SINCE", "REASON", "ADVICE"}, rows)
}

type stalesJSON struct {
	Stale []staleJSON `json:"stale"`
}

type staleJSON struct {
	Kind   string          `json:"kind"`
	Scope  string          `json:"scope"` // of a job the queue, of an effect its owner's
	Key    string          `json:"key"`   // of a job the id
	Class  string          `json:"class"`
	Reason string          `json:"reason"`
	Advice string          `json:"advice"`
	Since  time.Time       `json:"since"`
	Detail json.RawMessage `json:"detail"`
}

func staleToJSON(s ops.Stale) staleJSON {
	return staleJSON{s.Kind, s.Scope, s.Key, s.Class, s.Reason, s.Advice, s.Since.UTC(), s.Detail}
}
