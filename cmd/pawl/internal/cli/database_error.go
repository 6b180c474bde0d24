package cli

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
)

// explain reduces an error of pgx or the server to one line with the next step. Theirs have several
// lines with every address tried. The line names host, port, user and database, but never the URL,
// which contains the password.
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
		why, next := unreachable(c, err)
		return failed(cmd, errors.New(why), next)
	}
	return pawl.Wrap(operation(cmd), err)
}

// refusal explains common SQLSTATEs; next is empty for any other.
func refusal(c *pgx.ConnConfig, pg *pgconn.PgError) (why, next string) {
	user, database := pgx.Identifier{c.User}.Sanitize(), pgx.Identifier{c.Database}.Sanitize()
	switch pg.Code {
	case "28P01", "28000":
		why, next = addressOf(c)+" refused user "+user+": "+pg.Message, "correct the user and the password in the database URL"
		if strings.Contains(pg.Message, "pg_hba.conf") {
			next = "allow this user in the server's pg_hba.conf, or correct user and sslmode in the database URL"
		}
	case "3D000":
		why = "there is no database " + database + " on " + addressOf(c)
		next = "create it: create database " + database + ", or correct the name in the database URL"
	case "42501":
		why = "user " + user + ": " + pg.Message
		next = "connect as the owner, or let the owner run: grant connect, create on database " + database + " to " + user
	case "25006":
		why, next = addressOf(c)+" takes no writes: "+pg.Message, "connect to the primary, without default_transaction_read_only"
	case "42P05", "26000":
		why = addressOf(c) + ": " + pg.Message
		next = "connect directly; through a pooler in transaction mode add default_query_exec_mode=exec to the database URL, but migrate over a direct connection"
	case "42P06", "42P07", "42710":
		why = pg.Message + ", but pawl.migration has no record of it"
		next = "bring that table back from a backup, or, if the data may go: drop schema pawl, pawl_v1 cascade"
	case "2BP01":
		why, next = pg.Message+": "+pg.Detail, "drop what depends on Pawl's tables first"
	case "55P03":
		why, next = "another transaction holds a lock for longer than 5 s", "end that transaction (see pg_stat_activity), then run it again"
	case "53300", "57P01", "57P02", "57P03":
		why, next = addressOf(c)+" is not ready: "+pg.Message, "run it again in a moment"
	}
	return why, next
}

func unreachable(c *pgx.ConnConfig, err error) (why, next string) {
	cause := dialCause(err)
	if strings.Contains(cause, "TLS") || strings.Contains(cause, "tls:") || strings.Contains(cause, "x509:") {
		return fmt.Sprintf("no TLS connection to %s: %s", addressOf(c), cause), "correct sslmode and sslrootcert in the database URL"
	}
	// the server was reached and may have received the query
	if connect := (*pgconn.ConnectError)(nil); !errors.As(err, &connect) {
		return fmt.Sprintf("the connection to %s broke before the answer came: %s", addressOf(c), cause), "look before you run it again: what it was to change may be changed"
	}
	return fmt.Sprintf("cannot reach %s: %s", addressOf(c), cause), "start that server, correct the database URL, or " + startOne
}

func addressOf(c *pgx.ConnConfig) string {
	if strings.HasPrefix(c.Host, "/") {
		return fmt.Sprintf("%s/.s.PGSQL.%d", c.Host, c.Port)
	}
	return net.JoinHostPort(c.Host, fmt.Sprint(c.Port))
}

// dialCause returns the cause of a connection failure in a few words.
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
