package cli

import (
	"context"
	"fmt"
	"regexp"
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

// confirm refuses a down that would delete data, and shows what it deletes. The user must repeat
// the command with --yes.
func confirm(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, to int) error {
	installed, err := migrate.Status(ctx, conn)
	if err != nil {
		return err
	}
	versions := slices.DeleteFunc(schema.Versions(), func(v schema.Version) bool { return v.Number <= to || v.Number > installed.Version })
	if len(versions) == 0 || installed.Version > schema.Newest() {
		return nil // nothing to lose, or Down refuses
	}
	slices.Reverse(versions)
	var names []string
	for _, v := range versions {
		names = append(names, fmt.Sprintf("%04d_%s", v.Number, v.Name))
	}
	database, all := pgx.Identifier{conn.Config().Database}.Sanitize(), strings.Join(names, ", ")
	statements, named := removal(versions)
	if to == 0 {
		named = nil
	}
	rows, err := countRows(ctx, conn, named)
	if err != nil {
		return err
	}
	loses := fmt.Sprintf("this would remove %s and its data; database %s holds %s rows", all, database, rows)
	if to > 0 {
		loses = fmt.Sprintf("this would remove %s from database %s by: %s", all, database, statements)
		if rows != "" {
			loses += " rows in its tables: " + rows
		}
	}
	return misused(cmd, loses, "back up what you need, then add --yes")
}

var (
	comment = regexp.MustCompile(`(?m)--.*$`)
	ofPawl  = regexp.MustCompile(`\bpawl\.(\w+)`)
)

// removal returns the statements that remove the versions, in one line and without comments, and
// the names in schema pawl that are in them.
func removal(versions []schema.Version) (statements string, names []string) {
	names = []string{} // not nil: a script may name no table
	for _, v := range versions {
		statements += " " + comment.ReplaceAllString(v.Down, "")
	}
	for _, m := range ofPawl.FindAllStringSubmatch(statements, -1) {
		names = append(names, m[1])
	}
	return strings.Join(strings.Fields(statements), " "), names
}

// countRows counts the rows of Pawl's tables, as in "inbox 12, job 3". Without names it counts all.
func countRows(ctx context.Context, conn *pgx.Conn, names []string) (string, error) {
	rows, _ := conn.Query(ctx, `select c.relname::pg_catalog.text
  from pg_catalog.pg_class as c
 where c.relnamespace operator(pg_catalog.=) 'pawl'::pg_catalog.regnamespace
   and c.relkind operator(pg_catalog.=) any ('{r,p}')
   and c.relname operator(pg_catalog.<>) 'migration'
   and ($1::pg_catalog.text[] is null or c.relname::pg_catalog.text operator(pg_catalog.=) any ($1))
 order by 1`, names)
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
	return strings.Join(counts, ", "), nil
}
