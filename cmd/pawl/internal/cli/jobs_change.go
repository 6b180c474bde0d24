package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// A change is a verb that writes.
type change struct {
	name, short, long string
	do                func(ctx context.Context, db ops.DB, id int64, by ops.By) (ops.Result, error)
	example           string
	bulk              func(ctx context.Context, db ops.DB, f ops.Filter, by ops.By, progress func(ops.Bulk)) (ops.Bulk, error)
	done              string // what then has become of them
	warning           string // what cannot be taken back; empty: nothing, and nobody is asked
	mayDouble         bool   // for some jobs it may do so a second time: see [ops.Job.MayDouble]; of these somebody is asked
}

var (
	retryVerb = change{name: "retry", do: ops.Retry, bulk: ops.RetryAll, done: "retried", mayDouble: true,
		short: "Make jobs due now, with all their attempts before them",
		long: `Makes dead letters, cancelled jobs, or pending jobs that wait for their next try due now. Attempts and crashes start
from zero, the errors so far stay. It is the same job and the same intent: what committed before is not done again.

Some dead letters may take effect a second time: a delivery that came under a known key with another payload runs beside the first, and
one that is older than what is remembered may have run before. For these it asks, or needs --yes.`,
		example: "17 18 --reason 'the stock service is back'"}
	cancelVerb = change{name: "cancel", do: ops.Cancel,
		short: "End jobs that have not ended, and keep them to be retried or discarded",
		long: `Ends jobs that have not ended and keeps them. A running attempt cannot commit any more; its worker learns of it with its
next heartbeat. An attempt whose transaction is open at this moment is left alone: the command says which session
that is.`,
		example: "17 --reason 'the customer called it off' --yes",
		warning: "running attempts lose their work"}
	discardVerb = change{name: "discard", do: ops.Discard, bulk: ops.DiscardAll, done: "discarded",
		short: "Delete jobs that nobody works on",
		long: `Deletes jobs with their payload and errors. The audit keeps the rest, with length and SHA-256 of the payload. The memory
of their keys stays: a redelivery is still a duplicate. A delivery that a flow kept as it came stays in pawl.delivery until its
time is over, and pawl inbox replay can bring it back.`,
		example: "17 --reason 'a test message of last week' --yes",
		warning: "the payload is lost, but for deliveries that a flow has kept"}
)

type changeFlags struct {
	verb      change
	by        ops.By
	yes, json *bool
	bulkFlags
}

func (d door) newChange(verb change) *cobra.Command {
	f := changeFlags{verb: verb, by: ops.By{From: d.only}}
	cmd := &cobra.Command{Use: verb.name + " ID... --reason TEXT", Short: verb.short}
	cmd.Long = verb.long + `

Each job is a transaction of its own. Who and why go to pawl.audit with the job before and after. Exit 1 if any of the
jobs could not be changed; the others are.`
	cmd.Example = fmt.Sprintf("  pawl %s %s %s", d.name, verb.name, verb.example)
	addByFlags(cmd, &f.by)
	addFenceFlag(cmd, &f.by)
	many := d.only != nil && verb.bulk != nil
	if many {
		addBulkFlags(cmd, &f.bulkFlags, verb)
		cmd.Use = verb.name + " [ID...] --reason TEXT"
		cmd.Long += `

Instead of IDs, dead letters may be selected by queue, kind, error and age: all that match when it begins, by id, 200 a
transaction, each with its own record. It asks or needs --yes; begun again after an interruption, it does the rest.`
		cmd.Example += fmt.Sprintf("\n  pawl %[1]s %[2]s --queue orders --error 'connection refused' --dry-run", d.name, verb.name)
	}
	if verb.warning != "" || verb.mayDouble || many {
		f.yes = cmd.Flags().Bool("yes", false, "do not ask; required where nobody can be asked")
	}
	f.json = addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.given() {
			return f.bulk(cmd, args)
		}
		return f.run(cmd, args)
	}
	return cmd
}

func (f changeFlags) run(cmd *cobra.Command, args []string) error {
	ids, err := jobIDs(cmd, args)
	if err != nil {
		return err
	}
	if f.by.Fence != 0 && len(ids) != 1 {
		return misused(cmd, "--fence is for one job", "give one id, or leave --fence out")
	}
	if f.doubles {
		return misused(cmd, "--include-duplicates is for dead letters that are selected", "with ids, add --yes")
	}
	if err := checkBy(cmd, &f.by); err != nil {
		return err
	}
	ask := f.verb.warning != "" && !*f.yes
	if ask && !mayAsk(cmd) {
		return misused(cmd, fmt.Sprintf("this would %s %s: %s", f.verb.name, named(ids), f.verb.warning), "add --yes")
	}
	return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
		if ask && !agreed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question(conn, f.verb.name+" "+named(ids), f.verb.warning)) {
			return failed(cmd, errNotAgreed, "answer y, or add --yes")
		}
		if err := f.askOfDoubles(ctx, cmd, conn, ids); err != nil {
			return err
		}
		return f.change(ctx, cmd, conn, ids)
	})
}

// askOfDoubles asks before anything takes effect a second time.
func (f changeFlags) askOfDoubles(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, ids []int64) error {
	if !f.verb.mayDouble || *f.yes {
		return nil
	}
	var doubles []int64
	var dangers []string
	for _, id := range ids {
		d, found, err := ops.Show(ctx, conn, id)
		if err != nil {
			return err
		}
		if found && d.MayDouble() {
			doubles = append(doubles, id)
			dangers = append(dangers, danger(d.Job))
		}
	}
	if len(doubles) == 0 {
		return nil
	}
	const most = 3
	warning := strings.Join(dangers[:min(len(dangers), most)], "; ")
	if len(dangers) > most {
		warning += fmt.Sprintf("; and %d more", len(dangers)-most)
	}
	if !mayAsk(cmd) {
		return misused(cmd, fmt.Sprintf("this would %s %s: %s", f.verb.name, named(doubles), warning), "add --yes if that is wanted, or discard them")
	}
	if !agreed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question(conn, f.verb.name+" "+named(doubles), warning)) {
		return failed(cmd, errNotAgreed, "answer y, or add --yes")
	}
	return nil
}

// danger says why a job may take effect a second time.
func danger(j ops.Job) string {
	name := fmt.Sprintf("job %d", j.ID)
	if j.MessageKey != "" {
		name += " (" + j.MessageKey + ")"
	}
	if j.LastCode == string(pawl.CodeDeliveryStale) {
		return name + " is older than what is remembered and may have taken effect before"
	}
	return name + " came under a known key with another payload and runs beside the first"
}

// question asks whether to do something of which the warning says what cannot be taken back.
func question(conn *pgx.Conn, what, warning string) string {
	c := conn.Config()
	return fmt.Sprintf("%s of database %s on %s? (%s) [y/N] ", what, pgx.Identifier{c.Database}.Sanitize(), place(c), warning)
}

// change goes through the jobs and tells what became of each, also if it has to stop on the way.
func (f changeFlags) change(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, ids []int64) error {
	var misses []miss
	results := []resultJSON{}
	stopped := func() error {
		for _, id := range ids {
			r, err := f.one(ctx, conn, id)
			if err != nil {
				return err
			}
			results = append(results, r)
			if r.Hint != nil {
				misses = append(misses, missOf(r))
			}
		}
		return nil
	}()
	if err := f.print(cmd.OutOrStdout(), results); err != nil {
		return err
	}
	if stopped != nil {
		return stopped
	}
	return missed(cmd, len(ids), misses)
}

// one changes a job. A locked row concerns this job only, so it is an answer here.
func (f changeFlags) one(ctx context.Context, conn *pgx.Conn, id int64) (resultJSON, error) {
	r, err := f.verb.do(ctx, conn, id, f.by)
	var pg *pgconn.PgError
	if pawl.CodeOf(err) == "55P03" && errors.As(err, &pg) {
		return resultJSON{ID: id, Outcome: "locked", Hint: &pg.Hint}, nil
	}
	return resultJSON{id, string(r.Outcome), given(string(r.Was)), given(r.Hint)}, err
}

func missOf(r resultJSON) miss {
	switch {
	case r.Outcome == "locked":
		return miss{fmt.Sprintf("job %d is locked by an open transaction", r.ID), *r.Hint}
	case r.Was == nil:
		return miss{fmt.Sprintf("there is no job %d", r.ID), *r.Hint}
	}
	return miss{fmt.Sprintf("job %d is %s", r.ID, *r.Was), *r.Hint}
}

func (f changeFlags) print(w io.Writer, results []resultJSON) error {
	if *f.json {
		return printJSON(w, resultsJSON{results})
	}
	for _, r := range results {
		if r.Hint == nil {
			if _, err := fmt.Fprintf(w, "job %d %s (was %s)\n", r.ID, r.Outcome, *r.Was); err != nil {
				return err
			}
		}
	}
	return nil
}

// named counts the jobs and names the first few.
func named(ids []int64) string {
	const most = 10
	if len(ids) == 1 {
		return fmt.Sprintf("job %d", ids[0])
	}
	text := strings.Trim(fmt.Sprint(ids[:min(len(ids), most)]), "[]")
	if len(ids) > most {
		text += " …"
	}
	return fmt.Sprintf("%d jobs (%s)", len(ids), text)
}

// addByFlags gives a command the flags that say who and why.
func addByFlags(cmd *cobra.Command, by *ops.By) {
	cmd.Flags().StringVar(&by.Reason, "reason", "", "why, for whoever reads the audit later; required")
	cmd.Flags().StringVar(&by.Actor, "actor", "", "who (default: $USER)")
}

// addFenceFlag gives a command the flag that says what was looked at.
func addFenceFlag(cmd *cobra.Command, by *ops.By) {
	cmd.Flags().Int64Var(&by.Fence, "fence", 0, "the fence that was shown when you looked: if it has moved since, nothing changes")
}

// checkFence requires the fence of a verdict. Looking it up here would defeat it: it must be that of what the person saw.
func checkFence(cmd *cobra.Command, by ops.By, look string) error {
	if by.Fence <= 0 {
		return misused(cmd, "which attempt your verdict is about is missing", "pass --fence, as shown by: "+look)
	}
	return nil
}

// checkBy requires a reason, and somebody.
func checkBy(cmd *cobra.Command, by *ops.By) error {
	if strings.TrimSpace(by.Reason) == "" {
		return misused(cmd, "why is missing", "pass --reason, as in: --reason 'the stock service is back'")
	}
	if by.Actor == "" {
		by.Actor = whoami()
	}
	if by.Actor == "" {
		return misused(cmd, "who is missing: $USER is not set", "pass --actor")
	}
	return nil
}

func mayAsk(cmd *cobra.Command) bool {
	return isTerminal(cmd.InOrStdin()) && isTerminal(cmd.ErrOrStderr())
}

func whoami() string {
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}
