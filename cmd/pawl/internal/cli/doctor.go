package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/doctor"
	"github.com/pawl-go/pawl/internal/text"
)

func newDoctor() *cobra.Command {
	var l doctor.Limits
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the database and workers for common production problems, with a fix for each",
		Args:  noArgs,
		Long: `Checks the server, the schema and the rows. Each finding says what it is, why it matters and how to fix it. The exit code is 1 if
there is a finding or a check could not run, else 0. It changes nothing.

  engine      the server is PostgreSQL, of a version that is tested, and has what Pawl needs
  contract    schema and functions are those of this build
  durability  synchronous_commit, fsync and full_page_writes are on
  replication synchronous standbys are connected, and commits wait for them
  standbys    the connection is to the primary; a failover now loses nothing, and the loss of one standby stops no commit
  pooler      one connection is one session
  snapshots   no transaction or replication slot holds vacuum back
  prepared    there is no prepared transaction
  vacuum      autovacuum is on and keeps up
  indexes     no index is invalid
  collations  keys use collation C; the library of other collations has not changed
  workers     no worker is silent while it holds jobs
  handlers    no worker is silent for half its lease; 99 of 100 runs end well within Timeout and ShutdownTimeout
  waiting     no kind of job has been due for long without a worker that runs it
  paused      no paused queue has had due jobs for seven days
  schedules   no tick is overdue
  crashes     no job has lost its worker: a lease too short, or a process that dies
  retention   expired rows are purged
  path        no schema of a search_path lets other roles create objects
  row_security row level security hides no rows from the roles that work with Pawl's tables
  redelivery  each consumer remembers deliveries as long as its source may deliver them; none came later
  keys        no sampled key contains the time at which it came, or is another at each attempt

Rows that wait for a decision are counted, but they are no finding: see pawl stale.

Run times and retention are known from running workers and consumers, which report them. Programs that only call the SQL functions can
report them too.`,
		Example: "  pawl doctor\n  pawl doctor --skip pooler,crashes\n  pawl doctor --json | jq -r '.findings[].fix'",
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&l.Skip, "skip", nil, "checks to leave out, separated by commas")
	flags.DurationVar(&l.Transaction, "transaction", 5*time.Minute, "how long a transaction may be open")
	flags.DurationVar(&l.Waiting, "waiting", 5*time.Minute, "how long work may be due before a worker takes it")
	user := "" // of the connection
	return report[doctor.Diagnosis]{anySchema: true,
		check: func(cmd *cobra.Command, _ []string) error { return checkLimits(cmd, l) },
		read: func(ctx context.Context, conn *pgx.Conn, _ []string) (doctor.Diagnosis, error) {
			user = pgx.Identifier{conn.Config().User}.Sanitize()
			return doctor.Diagnose(ctx, conn, l)
		},
		print: printDiagnosis,
		verdict: func(cmd *cobra.Command, d doctor.Diagnosis) error {
			missed := notMade(d, l)
			switch {
			case len(d.Findings) > 0:
				return failed(cmd, fmt.Errorf("findings: %d", len(d.Findings)), "apply the fix, or leave a check out with --skip")
			case len(missed) > 0:
				return failed(cmd, fmt.Errorf("not checked: %s", strings.Join(missed, ", ")), "grant pawl_reader to user "+user+", or leave checks out with --skip")
			}
			return nil
		},
	}.on(cmd)
}

// checkLimits refuses unknown checks and invalid limits before it connects.
func checkLimits(cmd *cobra.Command, l doctor.Limits) error {
	for _, name := range l.Skip {
		if !slices.Contains(doctor.Checks(), name) {
			return misused(cmd, fmt.Sprintf("there is no check %q", name), "known: "+strings.Join(doctor.Checks(), ", "))
		}
	}
	if l.Transaction <= 0 || l.Waiting <= 0 {
		return misused(cmd, "--transaction and --waiting must be positive", "see: "+cmd.CommandPath()+" --help")
	}
	return nil
}

// notMade returns the checks that were requested and could not run.
func notMade(d doctor.Diagnosis, l doctor.Limits) (missed []string) {
	for _, name := range doctor.Checks() {
		if !slices.Contains(d.Checked, name) && !slices.Contains(l.Skip, name) {
			missed = append(missed, name)
		}
	}
	return missed
}

func printDiagnosis(cmd *cobra.Command, d doctor.Diagnosis) error {
	var out strings.Builder
	for _, f := range d.Findings {
		fmt.Fprintf(&out, "%s: %s\n  why  %s\n  fix  %s\n", f.Check, text.Visible(f.What), text.Visible(f.Why), text.Visible(f.Fix))
	}
	for _, u := range d.Unchecked {
		fmt.Fprintf(&out, "not checked: %s: %s\n", u.Check, text.Visible(u.Why))
	}
	if len(d.Findings) == 0 && len(d.Checked) > 0 {
		fmt.Fprintf(&out, "nothing found in %s\n", strings.Join(d.Checked, ", "))
	}
	if d.StandStill != nil {
		fmt.Fprintln(&out, standsStill(d.StandStill))
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), out.String())
	return err
}

// standsStill summarises in one line the rows that wait for a decision or a worker.
func standsStill(classes map[string]int) string {
	var parts []string
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		parts = append(parts, fmt.Sprintf("%d %s", classes[class], class))
	}
	if len(parts) == 0 {
		return "nothing waits for a decision or a worker"
	}
	return "waits for a decision or a worker: " + strings.Join(parts, ", ") + "; see: pawl stale"
}
