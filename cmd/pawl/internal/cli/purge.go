package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/ops"
)

func newPurge() *cobra.Command {
	var rule ops.PurgeRule
	var tables []string
	var by ops.By
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete what need not be remembered any more",
		Args:  noArgs,
		Long: `Deletes rows whose time is over, in small transactions with rests between, so that nobody waits; several may run at once. What is
processing, unknown or waits for a retry never goes, nor does a key whose job has a row.

  command, job_key, effect   know when their memory ends; without --table these three are purged
  inbox, delivery            need --consumer and --older-than; flows purge their own while they run
  replay, fence              need --older-than

Workers purge job_key by themselves. Gates and the audit are never purged. Each table that is purged leaves one record in the audit,
with the number of rows.`,
		Example: `  pawl purge --dry-run
  pawl purge --reason hourly --yes                             # from cron, every hour
  pawl purge --table inbox --consumer orders --older-than 720h --reason 'the consumer runs no more' --yes
  pawl purge --table fence --older-than 2160h --reason quarterly --yes`,
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&tables, "table", []string{"command", "job_key", "effect"}, "which; several with commas: command, job_key, effect, inbox, delivery, replay, fence")
	flags.StringVar(&rule.Consumer, "consumer", "", "of inbox and delivery: whose")
	flags.DurationVar(&rule.OlderThan, "older-than", 0, "only rows older than this, as 720h; of tables that know their end: look at no younger ones (default 24h)")
	flags.BoolVar(&rule.Unreported, "unreported", false, "of inbox: also below 14 days, though the consumer never reported for how long it must remember")
	addByFlags(cmd, &by)
	flags.BoolVar(&dryRun, "dry-run", false, "count, and delete nothing")
	flags.BoolVar(&yes, "yes", false, "do not ask; required where nobody can be asked")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		rules, err := purgeRules(cmd, tables, rule)
		if err != nil {
			return err
		}
		if !dryRun {
			if err := checkBy(cmd, &by); err != nil {
				return err
			}
		}
		what, warning := "purge "+strings.Join(tables, ", "), "what is purged is not remembered: the same key runs as new"
		ask := !yes && !dryRun
		if ask && !mayAsk(cmd) {
			return misused(cmd, "this would "+what+": "+warning, "add --yes, or --dry-run")
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			if ask && !agreed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question(conn, what, warning)) {
				return failed(cmd, errNotAgreed, "answer y, or add --yes")
			}
			out := purgedJSON{DryRun: dryRun, Tables: []purgedTableJSON{}}
			for _, r := range rules {
				n, err := purgeOne(ctx, cmd, conn, r, by, dryRun)
				if err != nil {
					return err
				}
				out.Tables = append(out.Tables, purgedTableJSON{string(r.Table), n})
			}
			return out.print(cmd, *asJSON)
		})
	}
	return cmd
}

func purgeRules(cmd *cobra.Command, tables []string, rule ops.PurgeRule) (rules []ops.PurgeRule, err error) {
	for _, t := range tables {
		rule.Table = ops.Table(t)
		switch {
		case !slices.Contains(ops.Tables(), rule.Table):
			return nil, misused(cmd, fmt.Sprintf("no table %q is purged", t), "known: command, job_key, effect, inbox, delivery, replay, fence")
		case rule.Table.OfConsumer() && rule.Consumer == "":
			return nil, misused(cmd, "rows of "+t+" belong to a consumer", "add --consumer")
		case !rule.Table.OfConsumer() && rule.Consumer != "":
			return nil, misused(cmd, "rows of "+t+" belong to no consumer", "leave --consumer out")
		case !rule.Table.KnowsEnd() && rule.OlderThan <= 0, rule.OlderThan < 0:
			return nil, misused(cmd, "rows of "+t+" do not know when they may go", "add --older-than, as in: --older-than 720h")
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func purgeOne(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, r ops.PurgeRule, by ops.By, dryRun bool) (int64, error) {
	if dryRun {
		return ops.Purgeable(ctx, conn, r)
	}
	n, err := ops.Purge(ctx, conn, r, by, seconds(func(purged int) {
		progress(cmd)(fmt.Sprintf("pawl.%s: %d rows so far", r.Table, purged))
	}))
	if err != nil && n > 0 {
		progress(cmd)(fmt.Sprintf("pawl.%s: %d rows purged before it failed; run it again for the rest", r.Table, n))
	}
	return int64(n), err
}

// seconds lets through one call a second.
func seconds[T any](report func(T)) func(T) {
	next := time.Now().Add(time.Second)
	return func(value T) {
		if now := time.Now(); now.After(next) {
			next = now.Add(time.Second)
			report(value)
		}
	}
}

type purgedJSON struct {
	DryRun bool              `json:"dry_run"` // rows are those that would go
	Tables []purgedTableJSON `json:"tables"`
}

type purgedTableJSON struct {
	Table string `json:"table"`
	Rows  int64  `json:"rows"`
}

func (p purgedJSON) print(cmd *cobra.Command, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), p)
	}
	heading := "PURGED"
	if p.DryRun {
		heading = "PURGEABLE"
	}
	rows := make([][]string, len(p.Tables))
	for i, t := range p.Tables {
		rows[i] = []string{"pawl." + t.Table, strconv.FormatInt(t.Rows, 10)}
	}
	return printTable(cmd.OutOrStdout(), []string{"TABLE", heading}, rows)
}
