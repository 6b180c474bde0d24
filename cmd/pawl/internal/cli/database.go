package cli

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
)

const (
	urlFlag     = "database-url"
	urlVariable = "PAWL_DATABASE_URL"
	urlForm     = "write postgres://user:password@host:5432/database, special characters in the password as %XX"
	startOne    = "start one with: pawl dev postgres --dir ./pgdata"
)

// connectLimit bounds connecting, unless the URL has a connect_timeout: a person is waiting.
const connectLimit = 10 * time.Second

// addDatabaseFlag gives all commands the flag. The variable is not its default: help would print the password.
func addDatabaseFlag(root *cobra.Command) {
	root.PersistentFlags().String(urlFlag, "", "the database, as postgres://... (default: $"+urlVariable+")")
}

// withDatabase connects to the database of the command line or the environment, runs do and explains what failed.
func withDatabase(cmd *cobra.Command, do func(ctx context.Context, conn *pgx.Conn) error) error {
	config, err := databaseConfig(cmd)
	if err != nil {
		return err
	}
	return connected(cmd, config, do)
}

func connected(cmd *cobra.Command, config *pgx.ConnConfig, do func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx := cmd.Context()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return explain(cmd, config, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return explain(cmd, config, do(ctx, conn))
}

func databaseConfig(cmd *cobra.Command) (*pgx.ConnConfig, error) {
	given, _ := cmd.Flags().GetString(urlFlag)
	source := "--" + urlFlag
	if given == "" {
		given, source = os.Getenv(urlVariable), urlVariable
	}
	if given == "" {
		return nil, misused(cmd, "no database", "set "+urlVariable+" or pass --"+urlFlag+", or "+startOne)
	}
	if strayAt(given) {
		return nil, misused(cmd, source+" cannot be read: a second @", urlForm)
	}
	pool, err := pgxpool.ParseConfig(given) // so that a program's URL, with its pool_max_conns, can be used as it is
	if err != nil {
		return nil, misused(cmd, source+" cannot be read"+whyUnreadable(given, err), urlForm)
	}
	config := pool.ConnConfig
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectLimit
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "pawl"
	}
	pawl.Watch(config, pawl.Watching{})
	return config, nil
}

// strayAt reports whether a URL has an @ too many: a piece of the password would be taken for the host or the name of the database, and
// be printed as such.
func strayAt(given string) bool {
	_, rest, isURL := strings.Cut(given, "://")
	if !isURL {
		return false
	}
	authority, more := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, more = rest[:i], rest[i:]
	}
	if strings.Contains(authority, "@") {
		return strings.Count(authority, "@") > 1 || strings.Contains(more, "@")
	}
	path, _, _ := strings.Cut(more, "?")
	return strings.Contains(path, "@")
}

// whyUnreadable gives the parser's reason where that cannot hold a piece of the password: a password with an
// unescaped slash makes net/url complain about an "invalid port" that is the password's beginning.
func whyUnreadable(given string, err error) string {
	cause := errors.Unwrap(err)
	parsed, parseErr := url.Parse(given)
	if parseErr != nil || parsed.Host == "" || cause == nil {
		return ""
	}
	if password, _ := parsed.User.Password(); password != "" && strings.Contains(cause.Error(), password) {
		return ""
	}
	return ": " + cause.Error()
}
