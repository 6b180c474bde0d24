package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/schema"
)

// countLimit bounds the counting of rows to be lost. Above it the text says "more than".
const countLimit = 100_000

func newMigrateDown() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down --to N --yes",
		Short: "Go back to version N and delete the data of later versions; 0 removes everything of Pawl's",
		Args:  noArgs,
	}
	to := cmd.Flags().Int("to", 0, "the version to go back to; 0 removes everything")
	yes := cmd.Flags().Bool("yes", false, "delete; without it the command prints what would be lost and exits 2")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("to") || *to < 0 {
			return misused(cmd, "the version to go back to is missing", "pass --to N; 0 removes everything, pawl migrate status lists the versions")
		}
		return withDatabase(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			if !*yes {
				if err := confirm(ctx, cmd, conn, *to); err != nil {
					return err
				}
			}
			removed, err := migrate.Down(ctx, conn, *to, progress(cmd))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "schema version %d (%d removed now)\n", *to, len(removed))
			return err
		})
	}
	return cmd
}

// confirm refuses a down that would delete data, and lists that data. The user must repeat the
// command with --yes.
func confirm(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, to int) error {
	installed, err := migrate.Status(ctx, conn)
	if err != nil {
		return err
	}
	if installed.Version > schema.Newest() {
		return failed(cmd, fmt.Errorf("the schema is at version %d, this build knows up to %d", installed.Version, schema.Newest()),
			"use a newer build, the one that installed it")
	}
	var versions []string
	for _, v := range schema.Versions() {
		if v.Number > to && v.Number <= installed.Version {
			versions = append(versions, fmt.Sprintf("%04d_%s", v.Number, v.Name))
		}
	}
	if len(versions) == 0 {
		return nil // nothing to lose, or Down refuses the target
	}
	slices.Reverse(versions)
	rows, err := countRows(ctx, conn)
	if err != nil {
		return err
	}
	return misused(cmd, fmt.Sprintf("this would remove %s and its data; database %s holds %s",
		strings.Join(versions, ", "), pgx.Identifier{conn.Config().Database}.Sanitize(), rows),
		"back up what you need, then add --yes")
}

// countRows counts the rows of each of Pawl's tables, as in "inbox 12, job 3".
func countRows(ctx context.Context, conn *pgx.Conn) (string, error) {
	rows, _ := conn.Query(ctx, `select c.relname::pg_catalog.text
  from pg_catalog.pg_class as c
 where c.relnamespace operator(pg_catalog.=) 'pawl'::pg_catalog.regnamespace
   and c.relkind operator(pg_catalog.=) any ('{r,p}')
   and c.relname operator(pg_catalog.<>) 'migration'
 order by 1`)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", err
	}
	counts := make([]string, len(tables))
	for i, table := range tables {
		var n int
		query := fmt.Sprintf("select pg_catalog.count(*) from (select from %s limit %d) as t", pgx.Identifier{"pawl", table}.Sanitize(), countLimit+1)
		if err := conn.QueryRow(ctx, query).Scan(&n); err != nil {
			return "", err
		}
		counts[i] = fmt.Sprintf("%s %d", table, n)
		if n > countLimit {
			counts[i] = fmt.Sprintf("%s more than %d", table, countLimit)
		}
	}
	return strings.Join(counts, ", ") + " rows", nil
}
