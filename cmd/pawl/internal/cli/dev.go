package cli

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/migrate"
)

func newDev() *cobra.Command {
	cmd := group("dev", "Tools for development")
	cmd.AddCommand(newDevPostgres(), newDevSQS(), newDevNATS(), newDevRabbitMQ(), newDevKafka())
	return cmd
}

type devFlags struct {
	dir       string
	noMigrate bool
	json      *bool
}

func newDevPostgres() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "postgres --dir DIR [-- COMMAND ...]",
		Short: "Run a private PostgreSQL until Ctrl-C, or for one command; its data stays in DIR",
		Long: `Runs a private PostgreSQL on a Unix socket that only you can open, with the data in DIR and Pawl's schema and roles installed. The
URL is printed on stdout once the server accepts connections, and is the same at each start on DIR. The server stops when this
command ends, even if it is killed; the data stays. Commits are durable: all settings are PostgreSQL's defaults.

With a COMMAND behind --, it runs that command with the URL in DATABASE_URL and PAWL_DATABASE_URL, and stops when the command ends.
Ctrl-C and SIGTERM reach the command as SIGINT.`,
		Example: "  pawl dev postgres --dir ./pgdata\n  pawl dev postgres --dir ./pgdata -- go run .\n  pawl dev postgres --dir ./pgdata --json | jq -r .url",
		Args:    behindDash,
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	cmd.Flags().StringVar(&f.dir, "dir", "", "data directory; created if missing")
	cmd.Flags().BoolVar(&f.noMigrate, "no-migrate", false, "do not install Pawl's schema and roles")
	f.json = addJSONFlag(cmd)
	return cmd
}

func (f devFlags) run(cmd *cobra.Command, command []string) (err error) {
	if f.dir == "" {
		return misused(cmd, "the data directory is missing", "pass --dir, as in: pawl dev postgres --dir ./pgdata")
	}
	ctx := cmd.Context()
	server, err := postgres.Start(ctx, postgres.Options{DataDir: f.dir, Durable: true, Log: progress(cmd)})
	if err != nil {
		return whyNotStarted(cmd, err, "check --dir, or choose another directory")
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if !f.noMigrate {
		if err := install(cmd, server); err != nil {
			return err
		}
	}
	return developed{server: server, title: "PostgreSQL " + server.Version(), dir: server.DataDir(), variables: []string{"DATABASE_URL", urlVariable},
		output: devOutput{URL: server.URL("postgres"), PID: server.PID()}, shell: urlVariable, next: "start it again; the data stays in " + server.DataDir()}.serve(cmd, command, *f.json)
}

// install migrates the server's database in the same way as pawl migrate up.
func install(cmd *cobra.Command, server *postgres.Server) error {
	config, err := pgx.ParseConfig(server.URL("postgres"))
	if err != nil {
		return failed(cmd, err, "")
	}
	return connected(cmd, config, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := migrate.Up(ctx, conn, progress(cmd)); err != nil {
			return err
		}
		return grantRoles(ctx, conn, progress(cmd))
	})
}

// causeLine matches the reason that PostgreSQL's programs print before they exit. They all run in
// the C locale.
var causeLine = regexp.MustCompile(`(?:FATAL|error): +(.+?)\s*$`)

// whyNotStarted returns the first line of a failed start and the reason from the server's log
// behind it. next is the hint for errors without their own.
func whyNotStarted(cmd *cobra.Command, err error, next string) error {
	if cmd.Context().Err() != nil {
		return failed(cmd, errors.New("interrupted"), "run it again")
	}
	first, log, _ := strings.Cut(err.Error(), "\n")
	first = strings.TrimPrefix(first, "postgres: ")
	for line := range strings.Lines(log) {
		if cause := causeLine.FindStringSubmatch(line); cause != nil {
			first += ": " + cause[1]
			break
		}
	}
	if errors.Is(err, postgres.ErrBusy) || errors.Is(err, postgres.ErrNotFound) || strings.HasSuffix(first, ")") {
		next = "" // the error has its own
	}
	return failed(cmd, errors.New(first), next)
}
