package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func newPurge() *cobra.Command {
	var rule ops.PurgeRule
	var tables []string
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete rows whose retention has passed",
		Args:  noArgs,
		Long: wrap(operator.Purge.Effect, `Expired rows are deleted in small transactions with pauses between them, so that no other session waits. Several may run at once.

  command, job_key, step     rows have their own expiry; without --table these three are purged
  inbox, delivery            need --consumer and --older-than
  replay, fence              need --older-than

Gates and the audit are never purged. Each table that is purged leaves one record in the audit, with the number of rows.`),
		Example: `  pawl purge --dry-run
  pawl purge --reason hourly --yes                             # from cron, every hour
  pawl purge --table inbox --consumer orders --older-than 720h --reason 'the consumer runs no more' --yes
  pawl purge --table fence --older-than 2160h --reason quarterly --yes`,
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&tables, "table", []string{"command", "job_key", "step"}, "tables, separated by commas: "+strings.Join(ops.Tables(), ", "))
	flags.StringVar(&rule.Consumer, "consumer", "", "consumer whose rows are purged, for inbox and delivery")
	flags.DurationVar(&rule.OlderThan, "older-than", 0, "only rows older than this, such as 720h; of rows with their own expiry, examine only older ones (default 24h)")
	flags.BoolVar(&rule.Unreported, "unreported", false, "for inbox: allow less than 14 days although the consumer never reported its retention")
	c := addChange(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		rules, err := purgeRules(cmd, tables, rule)
		if err != nil {
			return err
		}
		return c.run(cmd, "purge "+strings.Join(tables, ", "), operator.Purge.Warning,
			func(ctx context.Context, conn *pgx.Conn, by ops.By) error {
				out := purged{DryRun: c.dryRun, Tables: []purgedTable{}}
				for _, r := range rules {
					t, err := purgeOne(ctx, cmd, conn, r, by)
					if err != nil {
						return err
					}
					out.Tables = append(out.Tables, purgedTable{r.Table, t.Matched + t.Done})
				}
				if other := notAConsumer(rule.Consumer); other != "" {
					progress(cmd)(text.Visible(other))
				}
				return out.print(cmd, *c.json)
			})
	}
	return cmd
}

// purgeRules makes a rule for each table. It refuses options that a table cannot use, before it
// connects.
func purgeRules(cmd *cobra.Command, tables []string, rule ops.PurgeRule) (rules []ops.PurgeRule, err error) {
	for _, t := range tables {
		rule.Table = t
		if err := rule.Check(); err != nil {
			var p *pawl.Error
			errors.As(err, &p)
			return nil, misused(cmd, p.Err.Error(), p.Hint)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func purgeOne(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, r ops.PurgeRule, by ops.By) (ops.Tally, error) {
	t, err := operator.Purge.Do(ctx, conn, r, by, seconds(func(t ops.Tally) {
		progress(cmd)(fmt.Sprintf("pawl.%s: %s so far", r.Table, text.Plural(t.Done, "row", "rows")))
	}))
	if err != nil && t.Done > 0 {
		progress(cmd)(fmt.Sprintf("pawl.%s: %s purged before it failed; run it again for the rest", r.Table, text.Plural(t.Done, "row", "rows")))
	}
	return t, err
}

// seconds passes on at most one call a second.
func seconds[T any](report func(T)) func(T) {
	next := time.Now().Add(time.Second)
	return func(value T) {
		if now := time.Now(); now.After(next) {
			next = now.Add(time.Second)
			report(value)
		}
	}
}

type purged struct {
	DryRun bool          `json:"dry_run"` // counts the rows that would be deleted
	Tables []purgedTable `json:"tables"`
}

type purgedTable struct {
	Table string `json:"table"`
	Rows  int    `json:"rows"`
}

func (p purged) print(cmd *cobra.Command, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), p)
	}
	heading := "PURGED"
	if p.DryRun {
		heading = "PURGEABLE"
	}
	return printTable(cmd.OutOrStdout(), []string{"TABLE", heading}, each(p.Tables, func(t purgedTable) []string {
		return []string{"pawl." + t.Table, strconv.Itoa(t.Rows)}
	}))
}
