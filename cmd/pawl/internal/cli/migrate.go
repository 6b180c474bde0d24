package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/schema"
)

func newMigrate() *cobra.Command {
	cmd := group("migrate", "Install, check and remove Pawl's schema, or print it for your own migration tool")
	cmd.AddCommand(newMigrateUp(), newMigrateDown(), newMigrateStatus(), newMigrateCheck(), newMigratePrint())
	return cmd
}

func newMigrateUp() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the database to the newest version",
		Long: `Brings the database to the newest version, one transaction a version. Several may run at once: one works, the others wait. It needs
a direct connection, not a transaction-mode pooler. If the schema is newer than this build and still serves it, it changes nothing and
exits 0; if it does not serve it, it exits 1.`,
		Args: noArgs,
	}
	roles := cmd.Flags().Bool("roles", false, "also create and grant the roles pawl_app, pawl_operator and pawl_reader (needs CREATEROLE)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withDatabase(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			applied, err := migrate.Up(ctx, conn, progress(cmd))
			if err != nil {
				return err
			}
			installed, err := migrate.Status(ctx, conn)
			if err != nil {
				return err
			}
			if installed.Version > schema.Newest() {
				return leftNewer(cmd, installed.Version, *roles)
			}
			if *roles {
				if err := grantRoles(ctx, conn, progress(cmd)); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "schema version %d (%d applied now)\n", schema.Newest(), len(applied))
			return err
		})
	}
	return cmd
}

// leftNewer reports that there was nothing to do. It grants no roles either, because an older build
// does not know the grants that a newer schema needs.
func leftNewer(cmd *cobra.Command, installed int, roles bool) error {
	if roles {
		progress(cmd)("not granting the roles: run pawl migrate up --roles of the build that made the schema")
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "the schema is newer (%d > %d) and still serves this build; nothing to do\n", installed, schema.Newest())
	return err
}

func newMigrateCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Exit 0 if this build can work with the database, else 1 with the reason",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd, func(ctx context.Context, conn *pgx.Conn) error {
				if err := migrate.Check(ctx, conn); err != nil {
					return err
				}
				installed, err := migrate.Status(ctx, conn)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: the database fits this build (%s)\n", versionsOf(installed.Version))
				return err
			})
		},
	}
}

// versionsOf names the version of the schema, and that of the build if it is another one.
func versionsOf(installed int) string {
	if newest := schema.Newest(); installed != newest {
		return fmt.Sprintf("schema version %d, build for version %d", installed, newest)
	}
	return fmt.Sprintf("schema version %d", installed)
}

// grantRoles creates pawl_app, pawl_operator and pawl_reader, and grants their privileges. If a
// GRANT meets a concurrent one on the same table, PostgreSQL reports XX000, "tuple concurrently
// updated", and grantRoles retries. The script is one transaction and safe to repeat.
func grantRoles(ctx context.Context, conn *pgx.Conn, say func(string)) error {
	say("granting the roles")
	for try := 1; ; try++ {
		_, err := conn.Exec(ctx, schema.Roles())
		var pg *pgconn.PgError
		if err == nil {
			return nil
		}
		if try == grantTries || !errors.As(err, &pg) || pg.Code != "XX000" || !strings.HasPrefix(pg.Message, "tuple concurrently ") {
			return fmt.Errorf("roles: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("roles: %w", ctx.Err())
		case <-time.After(rand.N(grantPause)):
		}
	}
}

const (
	grantTries = 50
	grantPause = 100 * time.Millisecond // longest pause
)
