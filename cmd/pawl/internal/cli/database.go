package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	config, err := pgx.ParseConfig(given)
	if err != nil {
		return nil, misused(cmd, source+" cannot be read"+whyUnreadable(given, err), urlForm)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectLimit
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "pawl"
	}
	return config, nil
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

// explain reduces what pgx and the server say, several lines with every address tried, to one line with the next
// step. It names host, port, user and database, and never the URL: the password is in there.
func explain(cmd *cobra.Command, c *pgx.ConnConfig, err error) error {
	if err == nil {
		return nil
	}
	var usage *usageError
	if errors.As(err, &usage) {
		return err
	}
	if cmd.Context().Err() != nil {
		return failed(cmd, errors.New("interrupted"), "run it again; the step in progress was rolled back")
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		if why, next := refusal(c, pg); next != "" {
			return failed(cmd, errors.New(why), next)
		}
	}
	if pg == nil && pawl.Unreachable(err) {
		return failed(cmd, fmt.Errorf("cannot reach %s: %s", place(c), dialCause(err)),
			"start that server, correct the database URL, or "+startOne)
	}
	return pawl.Wrap(operation(cmd), err)
}

// refusal explains the SQLSTATEs that a person at a shell meets; next is empty for any other.
func refusal(c *pgx.ConnConfig, pg *pgconn.PgError) (why, next string) {
	user, database := pgx.Identifier{c.User}.Sanitize(), pgx.Identifier{c.Database}.Sanitize()
	switch pg.Code {
	case "28P01", "28000":
		return fmt.Sprintf("%s refused user %s: %s", place(c), user, pg.Message),
			"correct the user and the password in the database URL"
	case "3D000":
		return fmt.Sprintf("there is no database %s on %s", database, place(c)),
			"create it: create database " + database + ", or correct the name in the database URL"
	case "42501":
		return fmt.Sprintf("user %s: %s", user, pg.Message),
			"connect as the owner, or let the owner run: grant connect, create on database " + database + " to " + user
	case "53300":
		return fmt.Sprintf("%s has no connection left: %s", place(c), pg.Message), "run it again when others have closed theirs"
	case "57P03":
		return fmt.Sprintf("%s is not ready: %s", place(c), pg.Message), "run it again in a moment"
	case "55P03":
		return "another transaction holds a lock for longer than 5 s", "end that transaction (see pg_stat_activity), then run it again"
	case "2BP01":
		return pg.Message + ": " + pg.Detail, "drop what depends on Pawl's tables first"
	}
	return "", ""
}

func place(c *pgx.ConnConfig) string {
	if strings.HasPrefix(c.Host, "/") {
		return fmt.Sprintf("%s/.s.PGSQL.%d", c.Host, c.Port)
	}
	return net.JoinHostPort(c.Host, fmt.Sprint(c.Port))
}

// dialCause says in a few words why nothing answered.
func dialCause(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	var number syscall.Errno
	switch {
	case errors.As(err, &dns):
		return "this host name is not known"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.As(err, &number):
		return number.Error()
	}
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(err) {
		err = cause
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
