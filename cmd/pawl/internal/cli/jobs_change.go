package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// A jobVerb is a verb about jobs.
type jobVerb struct {
	name, short, long string
	do                func(r ops.JobRef, ctx context.Context, db pawl.DB, by ops.By) (ops.Result, error)
	example           string
	bulk              func(s ops.Jobs, ctx context.Context, db pawl.DB, by ops.By, progress func(ops.Tally)) (ops.Tally, error)
	done              string // what then has become of them
	warning           string // what cannot be taken back; empty: nothing, and it does not ask
	mayDouble         bool   // for some jobs it may do so a second time: see [ops.Job.MayDouble]; for these it asks
}

var (
	retryVerb = jobVerb{name: "retry", do: ops.JobRef.Retry, bulk: ops.Jobs.RetryAll, done: "retried", mayDouble: true,
		short: "Make jobs due now, with all their attempts before them",
		long: `Makes dead letters, cancelled jobs, or pending jobs that wait for their next try due now. Attempts and crashes start
from zero, the errors so far stay. It is the same job and the same intent: what committed before is not done again.

Some dead letters may take effect a second time: a delivery that came under a known key with another payload runs beside the first,
one that is older than what is remembered may have run before, and what a handler wrote that ended its transaction itself may be durable. For
these it asks, or needs --yes. A delivery without a key, or over a limit, is none of them: it is identified again, and claims its key.`,
		example: "17 18 --reason 'the stock service is back'"}
	cancelVerb = jobVerb{name: "cancel", do: ops.JobRef.Cancel,
		short: "End jobs that have not ended, and keep them to be retried or discarded",
		long: `Ends jobs that have not ended and keeps them. A running attempt cannot commit any more; its worker learns of it with its
next heartbeat. An attempt whose transaction is open at this moment is left alone: the command says which session
that is.`,
		example: "17 --reason 'the customer called it off' --yes",
		warning: "running attempts lose their work"}
	discardVerb = jobVerb{name: "discard", do: ops.JobRef.Discard, bulk: ops.Jobs.DiscardAll, done: "discarded",
		short: "Delete jobs that no attempt holds",
		long: `Deletes jobs with their payload and errors. The audit keeps the rest, with length and SHA-256 of the payload. The memory
of their keys stays: a redelivery is still a duplicate. A delivery that a consumer kept as it came stays in pawl.delivery until its
time is over, and pawl inbox replay can bring it back.`,
		example: "17 --reason 'a test message of last week' --yes",
		warning: "the payload is lost, but for deliveries that a consumer has kept"}
)

// A jobChange is one call of such a verb.
type jobChange struct {
	*change
	verb  jobVerb
	only  []ops.Status
	fence int64
	bulkFlags
}

func (d door) newVerb(verb jobVerb) *cobra.Command {
	f := jobChange{verb: verb, only: d.only}
	cmd := &cobra.Command{Use: verb.name + " ID... --reason TEXT", Short: verb.short}
	cmd.Long = verb.long + `

Each job is a transaction of its own. Who and why go to pawl.audit with the job before and after. Exit 1 if any of the
jobs could not be changed; the others are.`
	cmd.Example = fmt.Sprintf("  pawl %s %s %s", d.name, verb.name, verb.example)
	many := d.only != nil && verb.bulk != nil
	if many {
		addBulkFlags(cmd, &f.bulkFlags, verb)
		cmd.Use = verb.name + " [ID...] --reason TEXT"
		cmd.Long += `

Instead of IDs, dead letters may be selected by queue, kind, error and age: all that match when it begins, by id, 200 a
transaction, each with its own record. It asks or needs --yes; begun again after an interruption, it does the rest.`
		cmd.Example += fmt.Sprintf("\n  pawl %[1]s %[2]s --queue orders --error 'connection refused' --dry-run", d.name, verb.name)
	}
	f.change = addChange(cmd, verb.warning != "" || verb.mayDouble || many)
	addFenceFlag(cmd, &f.fence)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.selects(args) {
			return f.bulk(cmd, args)
		}
		return f.run(cmd, args)
	}
	return cmd
}

func (f jobChange) run(cmd *cobra.Command, args []string) error {
	ids, err := jobIDs(cmd, args)
	switch {
	case err != nil:
		return err
	case f.fence != 0 && len(ids) != 1:
		return misused(cmd, "--fence is for one job", "give one id, or leave --fence out")
	case f.doubles:
		return misused(cmd, "--include-duplicates is for dead letters that are selected", "with ids, add --yes")
	}
	return f.change.run(cmd, f.verb.name+" "+counted(ids), f.verb.warning, func(ctx context.Context, conn *pgx.Conn, by ops.By) error {
		if err := f.askOfDoubles(ctx, cmd, conn, ids); err != nil {
			return err
		}
		return several[int64]{change: f.change, asked: ids, text: jobChanged, miss: jobMissed}.run(cmd, func(id int64) (ops.Result, error) {
			r, err := f.verb.do(ops.JobRef{ID: id, Fence: f.fence, Statuses: f.only}, ctx, conn, by)
			r.JobID = id
			return r, err
		})
	})
}

func jobChanged(id int64, r ops.Result) string {
	return fmt.Sprintf("job %d %s (was %s)", id, r.Outcome, r.Was)
}

func jobMissed(id int64, r ops.Result) *miss {
	switch r.Outcome {
	case locked:
		return &miss{fmt.Sprintf("job %d is locked by an open transaction", id), r.Hint}
	case ops.Absent:
		return &miss{fmt.Sprintf("there is no job %d", id), r.Hint}
	}
	return &miss{fmt.Sprintf("job %d is %s", id, r.Was), r.Hint}
}

// askOfDoubles asks before anything takes effect a second time.
func (f jobChange) askOfDoubles(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, ids []int64) error {
	if !f.verb.mayDouble || f.yes || f.dryRun {
		return nil
	}
	var doubles []int64
	var dangers []string
	for _, id := range ids {
		j, err := ops.JobRef{ID: id}.Get(ctx, conn)
		if err != nil && !errors.Is(err, pawl.ErrNotFound) {
			return err
		}
		if j.MayDouble() {
			doubles = append(doubles, id)
			dangers = append(dangers, danger(j))
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
	return f.ask(ctx, cmd, conn, f.verb.name+" "+counted(doubles), warning)
}

// danger says why a job may take effect a second time.
func danger(j ops.Job) string {
	name := fmt.Sprintf("job %d", j.ID)
	if j.Key != "" {
		name += " (" + j.Key + ")"
	}
	switch pawl.Code(j.LastCode) {
	case pawl.CodeDeliveryStale:
		return name + " is older than what is remembered and may have taken effect before"
	case pawl.CodeCommitUnknown:
		return name + " may have written its rows before it failed: its handler ended the transaction itself"
	}
	return name + " came under a known key with another payload and runs beside the first"
}

// counted counts the jobs and names the first few.
func counted(ids []int64) string {
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
