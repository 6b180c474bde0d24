package cli

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/cmd/pawl/internal/demo"
)

// newDemo is `pawl demo`: the promise, shown under fire.
func newDemo() *cobra.Command {
	var o demo.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch duplicates and killed workers fail to double or lose anything",
		Long: `Sends orders through a real SQS client to an SQS inside this process that duplicates, reorders and forgets deletes. Worker
processes apply each order to PostgreSQL; they are killed with SIGKILL, at random and at named points of the pipeline,
and restarted. In the end a checker that shares no code with Pawl compares what was sent with the business tables.
Exit code 1 if anything is doubled, lost, altered or torn.

The database is a private PostgreSQL with its own, durable settings, gone afterwards; --database-url names another, which
must hold Pawl's schema (the environment is not asked, so that no demo runs where you did not mean it).`,
		Example: "  pawl demo\n  pawl demo --messages 50000 --kills 40 --workers 4\n  pawl demo --poison 3 --keep\n  pawl demo --seed 7 --json",
		Args:    noArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Messages, "messages", 5000, "orders to send")
	flags.IntVar(&o.Duplicates, "duplicates", 3, "times each order is sent in all, each time as a new message")
	flags.IntVar(&o.Workers, "workers", 3, "worker processes")
	flags.IntVar(&o.Kills, "kills", 10, "workers to SIGKILL and restart")
	flags.IntVar(&o.Poison, "poison", 0, "orders among them that no handler can apply: dead letters")
	flags.Float64Var(&o.HandlerErrors, "handler-errors", 0.02, "share of attempts whose handler fails after writing")
	flags.Uint64Var(&o.Seed, "seed", 0, "decides orders, faults and kills; 0 picks one and prints it")
	flags.BoolVar(&o.Keep, "keep", false, "keep the database and say where it is")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Minute, "give up after this long")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runDemo(cmd, o, *asJSON) }
	return cmd
}

func runDemo(cmd *cobra.Command, o demo.Options, asJSON bool) error {
	if err := o.Validate(); err != nil {
		return misused(cmd, err.Error(), "see: pawl demo --help")
	}
	config := &pgx.ConnConfig{}
	if cmd.Flags().Changed(urlFlag) {
		var err error
		if config, err = databaseConfig(cmd); err != nil {
			return err
		}
		o.DatabaseURL, _ = cmd.Flags().GetString(urlFlag)
	}
	for o.Seed == 0 {
		o.Seed = uint64(rand.Uint32())
	}
	var err error
	if o.Executable, err = os.Executable(); err != nil {
		return failed(cmd, err, "")
	}
	display := newDisplay(cmd.ErrOrStderr())
	report, err := demo.Run(cmd.Context(), o, display)
	display.end()
	if err != nil {
		return explain(cmd, config, err)
	}
	if err := printReport(cmd.OutOrStdout(), report, asJSON); err != nil {
		return err
	}
	if !report.OK() {
		return failed(cmd, errors.New("the promise was broken: "+report.Violations[0]),
			fmt.Sprintf("run it again with --seed %d --keep and look", report.Seed))
	}
	return nil
}

func printReport(w io.Writer, r demo.Report, asJSON bool) error {
	if asJSON {
		return printJSON(w, r)
	}
	rows := [][]string{
		{"orders sent", fmt.Sprint(r.Intents), "intents: each must take effect once"},
		{"deliveries", fmt.Sprint(r.Deliveries), "messages SQS handed out"},
		{"effects", fmt.Sprint(r.Effects), "order rows in PostgreSQL"},
		{"duplicates absorbed", fmt.Sprint(r.DuplicatesAbsorbed), "deliveries recognised as seen"},
		{"failures retried", fmt.Sprint(r.Retried), "handler errors, landed and tried again"},
		{"dead letters", fmt.Sprint(r.DeadLetters), "kept with their payload"},
		{"workers killed", fmt.Sprint(r.Kills), "SIGKILL: " + whereKilled(r.KilledAt)},
		{"doubled", fmt.Sprint(r.Doubled), verdict(r.Doubled)},
		{"lost", fmt.Sprint(r.Lost), verdict(r.Lost)},
		{"altered, torn, unexpected", fmt.Sprint(r.Altered + r.Torn + r.Unexpected), verdict(r.Altered + r.Torn + r.Unexpected)},
	}
	if err := printTable(w, []string{"what", "count", "meaning"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%.1f s, %.0f effects/s, seed %d\n", r.Seconds, r.PerSecond, r.Seed)
	for _, v := range r.Violations {
		fmt.Fprintln(w, "violation:", v)
	}
	return err
}

func verdict(n int) string {
	if n == 0 {
		return "ok"
	}
	return "BROKEN"
}

// whereKilled sums up the kills by point.
func whereKilled(kills []demo.Kill) string {
	counts := map[string]int{}
	var order []string
	for _, k := range kills {
		if counts[k.Point] == 0 {
			order = append(order, k.Point)
		}
		counts[k.Point]++
	}
	text := ""
	for _, point := range order {
		text += fmt.Sprintf("%s ×%d  ", point, counts[point])
	}
	return text
}
