package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/cmd/pawl/internal/demo"
)

func newDemo() *cobra.Command {
	var o demo.Options
	cmd := &cobra.Command{
		Use:        "demo",
		SuggestFor: []string{"lab", "crash", "watch"},
		Short:      "Watch Pawl apply each order once, despite duplicates and killed workers",
		Long: `Sends orders through a real SQS client to an SQS inside this process, which duplicates, reorders and loses deletes. Worker
processes apply each order to PostgreSQL. They are killed with SIGKILL, at random and at named points of the pipeline, and
restarted. At the end a checker that shares no code with Pawl compares the orders sent with the business tables. The exit code is 1
if an order is doubled, lost, altered or torn.

With --broker the orders go through a real NATS, RabbitMQ or Kafka server instead, started for the run and removed afterwards. If it
is not installed, NATS is built from its Go module and Kafka is downloaded with Maven; RabbitMQ is your system's package
rabbitmq-server. These three need the program pawl-brokers, which is pawl with their clients.

With --pipeline the handler also appends an event, in the same transaction. A relay publishes it to a second queue, where it must
take effect once as well: one order, one shipment.

With --payments orders arrive as signed webhooks over HTTP, each repeated until it is answered with 200. The handler charges at a
bank, sends a mail and appends the event. Bank and mail server misbehave: they time out, cut connections, and answer 500 after they
have acted. The bank recognises keys. The mail server does not, so a mail in doubt is unknown until the demo asks. One order, one
charge, one mail, one event.

With --lease the demo shows two letters step by step. One worker is killed while it sends the mail, another is frozen past its lease.
Each time another process takes over, finds that the mail was sent, and does the rest. When the frozen worker wakes up, its late
commit is rejected.

With --watch it opens a page: workers with Pawl, beside them workers by hand in one of seven ways that you choose, and buttons that
kill, freeze and disconnect both. It runs until Ctrl-C, and then prints what was doubled or lost.

The database is a private PostgreSQL with its own, durable settings, removed afterwards. --database-url names another, which must
have Pawl's schema. The environment variable is ignored, so that no demo runs on a database that you did not mean.`,
		Example: "  pawl demo\n  pawl demo --messages 50000 --kills 40 --workers 4\n  pawl demo --poison 3 --keep\n  pawl demo --pipeline\n  pawl-brokers demo --broker kafka\n  pawl demo --payments\n  pawl demo --lease\n  pawl demo --watch\n  pawl demo --seed 7 --json",
		Args:    noArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Messages, "messages", 5000, "orders to send; with --payments 1000 by default")
	flags.IntVar(&o.Duplicates, "duplicates", 3, "times each order is sent on average, each time as a new message; half are sent once")
	flags.IntVar(&o.Workers, "workers", 3, "worker processes")
	flags.IntVar(&o.Kills, "kills", 10, "workers to SIGKILL and restart")
	flags.IntVar(&o.Poison, "poison", 0, "orders among them that no handler can apply: dead letters")
	flags.StringVar(&o.Broker, "broker", "sqs", "broker of the orders: "+strings.Join(broker.Kinds(), ", "))
	flags.BoolVar(&o.Pipeline, "pipeline", false, "append an event for each order, publish it to a second queue, and ship it there")
	flags.BoolVar(&o.Payments, "payments", false, "receive orders as webhooks, and charge and mail each at servers that misbehave")
	lease := flags.Bool("lease", false, "show a lease takeover step by step, instead")
	var w watchFlags
	flags.BoolVar(&w.watch, "watch", false, "open the crash lab, a page with buttons, instead")
	flags.Float64Var(&w.rate, "rate", 25, "with --watch: orders a second")
	flags.StringVar(&w.listen, "listen", dashboardAddress, "with --watch: loopback address and port; port 0 takes a free one")
	flags.Float64Var(&o.HandlerErrors, "handler-errors", 0.02, "share of attempts whose handler fails after writing")
	flags.Uint64Var(&o.Seed, "seed", 0, "decides orders, faults and kills; 0 picks one and prints it")
	flags.BoolVar(&o.Keep, "keep", false, "keep the database and print where it is")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Minute, "give up after this long")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if w.watch {
			return w.run(cmd, o.Workers, *asJSON)
		}
		for _, name := range []string{"rate", "listen"} {
			if cmd.Flags().Changed(name) {
				return misused(cmd, "--"+name+" goes with --watch", "see: pawl demo --help")
			}
		}
		if *lease {
			return runLease(cmd, o, *asJSON)
		}
		return runDemo(cmd, o, *asJSON)
	}
	return cmd
}

func runDemo(cmd *cobra.Command, o demo.Options, asJSON bool) error {
	if o.Payments && !cmd.Flags().Changed("messages") {
		o.Messages = 1000
	}
	return playDemo(cmd, o, asJSON, demo.Run, printReport, func(r demo.Report) error {
		return failed(cmd, errors.New("the promise was broken: "+firstViolation(r)), fmt.Sprintf("run it again with --seed %d --keep and look", r.Seed))
	})
}

// playDemo plays a demo and prints its report. broken is the error of a broken promise.
func playDemo[R interface{ OK() bool }](cmd *cobra.Command, o demo.Options, asJSON bool, run func(context.Context, demo.Options, demo.Display) (R, error),
	print func(io.Writer, R) error, broken func(R) error) error {
	if err := o.Validate(); err != nil {
		return misused(cmd, err.Error(), "see: pawl demo --help")
	}
	config, err := prepareDemo(cmd, &o)
	if err != nil {
		return err
	}
	display := newDisplay(cmd.ErrOrStderr())
	report, err := run(cmd.Context(), o, display)
	display.end()
	if err != nil {
		return explainDemo(cmd, config, o, err)
	}
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), report)
	} else {
		err = print(cmd.OutOrStdout(), report)
	}
	if err != nil || report.OK() {
		return err
	}
	return broken(report)
}

// playFlags are the flags that exclude --lease.
var playFlags = []string{"messages", "duplicates", "workers", "kills", "poison", "pipeline", "broker", "payments", "handler-errors", "seed"}

func runLease(cmd *cobra.Command, o demo.Options, asJSON bool) error {
	if n := slices.IndexFunc(playFlags, cmd.Flags().Changed); n >= 0 {
		return misused(cmd, "--"+playFlags[n]+" does not go with --lease", "see: pawl demo --help")
	}
	return playDemo(cmd, o, asJSON, demo.RunLease, printLease, func(demo.LeaseReport) error {
		return failed(cmd, errors.New("the promise was broken"), "run it again with --keep and look")
	})
}

// prepareDemo sets the options that the flags left open.
func prepareDemo(cmd *cobra.Command, o *demo.Options) (config *pgx.ConnConfig, err error) {
	config = &pgx.ConnConfig{}
	if flag := cmd.Flags().Lookup(urlFlag); flag.Changed {
		if o.DatabaseURL = flag.Value.String(); o.DatabaseURL == "" {
			return nil, misused(cmd, "--"+urlFlag+" is empty", "name a database, or leave the flag out for a private server")
		}
		if config, err = databaseConfig(cmd); err != nil {
			return nil, err
		}
	}
	for o.Seed == 0 {
		o.Seed = uint64(rand.Uint32())
	}
	if o.Executable, err = os.Executable(); err != nil {
		return nil, failed(cmd, err, "")
	}
	return config, nil
}

// explainDemo adds the next step to an error that ended a run.
func explainDemo(cmd *cobra.Command, config *pgx.ConnConfig, o demo.Options, err error) error {
	again := fmt.Sprintf("run it again with --seed %d", o.Seed)
	if cmd.Context().Err() != nil {
		return failed(cmd, errors.New("interrupted"), again)
	}
	var start *demo.StartError
	if errors.As(err, &start) {
		return whyNotStarted(cmd, start.Err, "name a database with --"+urlFlag)
	}
	err = explain(cmd, config, err)
	if strings.HasSuffix(err.Error(), ")") {
		return err // it has a next step already
	}
	if ours, ok := err.(*pawl.Error); ok && ours.Op == operation(cmd) {
		err = ours.Err
	}
	return failed(cmd, err, again)
}

func firstViolation(r demo.Report) string {
	if len(r.Violations) > 0 {
		return r.Violations[0]
	}
	return fmt.Sprintf("%d messages or retries were never settled", r.Unsettled)
}
