// Package cli is the command tree of the pawl binary.
//
//	root.go      the tree, help and exit codes
//	fail.go      errors as one line
//	database.go  the database and connecting to it; database_error.go: its errors
//	output.go    tables and JSON; visible.go: text from the database on a terminal
//	report.go    common to commands that only read; list.go: to lists
//	change.go    common to changes; ask.go: consent; verb.go: commands from the
//	             operator's table; several.go: changes of several named things
//	migrate*.go  pawl migrate up, down, status, check, print
//	status.go    pawl status; the same for dashboard, doctor, explain, stale, purge;
//	             size.go: pawl size, which needs no database
//	jobs*.go     pawl jobs and pawl dlq: list, show, retry, cancel, discard
//	commands.go  pawl commands; the same for steps, queues, lanes, schedules,
//	             inbox*, outbox, sequence_gates
//	webhook*.go  pawl webhook sign, send, verify
//	init.go      pawl init
//	adopt.go     pawl adopt
//	dev.go       pawl dev postgres; dev_run.go: runs a command; dev_sqs*.go: pawl dev
//	             sqs; dev_broker.go and the rest: other brokers
//	demo*.go     pawl demo; display.go: its progress
//	version.go   pawl version
package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

const promise = `Pawl: at-least-once in, exactly one effect out, on plain PostgreSQL.

The same intent, with the same payload, in the same scope, takes effect once, and every repeated request gets the
same response. Work may arrive twice and a process may die at any point: that costs a retry, never a second effect.`

const examples = `  pawl demo                            # duplicates and SIGKILL against a private server: nothing doubled, nothing lost
  pawl init orders                     # the smallest service that runs, with a test
  pawl dev postgres --dir ./pgdata     # a private server, until Ctrl-C; prints its URL
  export PAWL_DATABASE_URL='postgres://user:password@host:5432/database'
  pawl migrate up                      # install or bring up to date
  pawl migrate check                   # in a deploy: does this build fit this database?
  pawl migrate print --format goose --dir ./migrations
  pawl status                          # queues, workers, events, decisions to make
  pawl dashboard                       # the same and more, in a browser
  pawl doctor                          # common production problems, with a fix for each
  pawl explain order-17                # the history of one key
  pawl dlq list                        # jobs that wait for your decision
  pawl dlq retry 17 --reason 'the stock service is back'
  pawl adopt processed_messages --consumer payments   # move a table of processed messages to the inbox
  pawl webhook send http://localhost:8080/hook --scheme stripe --body event.json --repeat 3`

const usageTemplate = `{{if .Runnable}}Usage: {{if .HasAvailableSubCommands}}{{.CommandPath}} {{or .Annotations.usage "COMMAND"}} [flags]{{else}}{{.UseLine}}{{end}}
{{end}}{{if .HasAvailableSubCommands}}
Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{if .HasAvailableInheritedFlags}}
Global flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{if .HasExample}}
Examples:
{{.Example}}
{{end}}
Environment:
  PAWL_DATABASE_URL   the database, unless --database-url names another
  PAWL_WEBHOOK_SECRET the secret of webhook sign, send and verify, unless a flag names another place
  AWS_ENDPOINT_URL    where dev sqs send finds its service, unless --endpoint names another
  PAWL_PG_BIN         where dev postgres finds initdb and postgres; default: a search, then a download

Exit codes: 0 success; 1 failure, something not found, or a failed check; 2 wrong usage. An error is one line on
stderr.
`

// usageAnnotation replaces "COMMAND" in the usage line of a group that is also a command.
const usageAnnotation = "usage"

// Main runs the command of the process and returns its exit code. The first interrupt ends the
// command in order, a second one ends it at once.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// Run runs one command and returns the exit code of the process. ctx ends when the user interrupts.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return exit(stderr, root.ExecuteContext(ctx))
}

func newRoot() *cobra.Command {
	root := group("pawl", "At-least-once in, exactly one effect out, on plain PostgreSQL")
	root.Long, root.Example = promise, examples
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(flagError)
	// The variable is not the flag's default, because help would print the password.
	root.PersistentFlags().String(urlFlag, "", "the database, as postgres://... (default: $"+urlVariable+")")
	root.SetHelpCommand(newHelp())

	// Every command is added here.
	root.AddCommand(newDemo(), newDemoWorker(), newLabWorker())
	root.AddCommand(newMigrate())
	root.AddCommand(newStatus(), newDashboard(), newDoctor(), newExplain(), newStale(), newPurge(), newSize())
	root.AddCommand(newCommands(), newJobs(), newDLQ(), newLanes(), newQueues(), newSchedules(), newInbox(), newGates(), newOutbox(), newSteps(), newWebhook())
	root.AddCommand(newInit(), newDev(), newAdopt())
	root.AddCommand(newVersion())
	return root
}

// group makes a command that only holds others. Alone it prints its help, and it refuses unknown
// commands.
func group(name, short string) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short,
		Args:  knownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

// newHelp is `pawl help COMMAND`. Cobra's own exits with 0 for an unknown command.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND]",
		Short:  "Print the help of a command",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return knownCommand(found, rest)
			}
			return found.Help()
		},
	}
}
