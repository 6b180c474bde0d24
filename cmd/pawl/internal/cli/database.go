package cli

import (
	"cmp"
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

// connectLimit bounds connecting, unless the URL has a connect_timeout, because a person waits.
const connectLimit = 10 * time.Second

// withDatabase connects to the database of the command line or the environment, and calls do. It
// explains errors of both.
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
	pool, err := pgxpool.ParseConfig(given) // accepts a program's URL as it is, with pool_max_conns
	if err != nil {
		return nil, misused(cmd, source+" cannot be read"+whyUnreadable(given, err), urlForm)
	}
	config := pool.ConnConfig
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, connectLimit)
	config.RuntimeParams["application_name"] = cmp.Or(config.RuntimeParams["application_name"], "pawl")
	pawl.Watch(config, pawl.Watching{})
	return config, nil
}

// strayAt reports whether a URL has one @ too many. Part of the password would then be parsed as
// host or database, and be printed.
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

// whyUnreadable returns the parser's reason if it cannot contain part of the password. If a
// password has an unescaped slash, net/url reports an "invalid port" that is the start of the
// password.
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
