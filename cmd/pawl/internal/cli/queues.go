package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func newQueues() *cobra.Command {
	cmd := group("queues", "Pause, drain and resume queues, and look at what was set for them")
	cmd.Long = `A queue needs no setting up: one that is not listed has no jobs and the defaults.

  mode      running    workers claim what is due
            draining   they claim only what was tried before and is to be tried again
            paused     they claim nothing
  archive   off        a finished job is deleted, payload and all
            on         it is kept for seven days: pawl jobs show ID, view pawl_v1.archive

In every mode, jobs that are running go on to their end, and jobs can be enqueued. A mode holds for all claims that begin after it was
set, in every process. A worker finds that a queue runs again at its next poll, by default within half a second.`
	cmd.Example = `  pawl queues pause orders --reason 'the stock service is down'
  pawl queues resume orders --reason 'it is back'
  pawl queues drain orders --reason 'version 7 reads other payloads'
  pawl queues list                                         # PROCESSING and BEGUN 0: drained
  pawl queues set orders --archive=true --reason 'the auditors ask for a week'`
	cmd.AddCommand(newQueuesList(),
		newQueuesMode("pause", "Claim nothing of a queue", ops.QueuePaused, ops.QueueRef.Pause),
		newQueuesMode("drain", "Claim of a queue only what was tried before", ops.QueueDraining, ops.QueueRef.Drain),
		newQueuesMode("resume", "Claim again all that is due", ops.QueueRunning, ops.QueueRef.Resume), newQueuesSet())
	return cmd
}

func newQueuesList() *cobra.Command {
	var s ops.Queues
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the queues that have jobs, or for which something was set, by name",
		Example: "  pawl queues list\n  pawl queues list --json | jq -r '.queues[] | select(.mode == \"paused\").name'",
	}
	return list[ops.Queue]{name: "queues", none: "no queue has a job, and nothing was set for any", row: queueCells,
		heading: []string{"QUEUE", "MODE", "ARCHIVE", "DUE", "LATER", "WAITING", "PROCESSING", "BEGUN", "DEAD"},
		read:    func(ctx context.Context, conn *pgx.Conn) (ops.Page[ops.Queue], error) { return s.List(ctx, conn) },
	}.on(cmd, &s.Limit, &s.After)
}

func queueCells(q ops.Queue) []string {
	return []string{cell(q.Name, nameWidth), q.Mode, onOff(q.Archive), strconv.Itoa(q.Due), strconv.Itoa(q.Later), strconv.Itoa(q.Waiting),
		strconv.Itoa(q.Processing), strconv.Itoa(q.Begun), strconv.Itoa(q.Dead)}
}

// newQueuesMode is a command that sets what may be claimed of a queue.
func newQueuesMode(name, short, mode string, set func(r ops.QueueRef, ctx context.Context, db pawl.DB, by ops.By) (ops.Result, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:     name + " QUEUE --reason TEXT",
		Short:   short,
		Long:    short + ", from now on, in every process; the queue need not have had a job. See: pawl queues --help. Who and why go to pawl.audit.",
		Example: "  pawl queues " + name + " orders --reason 'the stock service was down from 9 to 10'",
	}
	return queueVerb(func(args []string, r ops.Result) string {
		if !r.Changed() {
			return fmt.Sprintf("queue %s %s already", text.Visible(args[0]), mode)
		}
		return fmt.Sprintf("queue %s %s (was %s)", text.Visible(args[0]), mode, r.Was)
	}, func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error) {
		return set(ops.QueueRef{Name: args[0]}, ctx, conn, by)
	}).on(cmd)
}

func newQueuesSet() *cobra.Command {
	var archive bool
	cmd := &cobra.Command{
		Use:   "set QUEUE --archive=BOOL --reason TEXT",
		Short: "Set whether a queue keeps its finished jobs for seven days",
		Long: `Sets what holds for all jobs of a queue from now on; the queue need not have had one. What is in the archive stays there until
it is seven days old. Payloads are kept too: think of who may read them. Who and why go to pawl.audit.`,
		Example: "  pawl queues set orders --archive=true --reason 'the auditors ask for a week'",
	}
	cmd.Flags().BoolVar(&archive, "archive", false, "keep finished jobs for seven days; required")
	set := queueVerb(func(args []string, r ops.Result) string {
		return fmt.Sprintf("queue %s %s (archive was %s)", text.Visible(args[0]), r.Outcome, r.Was)
	}, func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error) {
		return ops.QueueRef{Name: args[0]}.SetArchive(ctx, conn, archive, by)
	})
	set.check = func(cmd *cobra.Command, args []string) error {
		if n := len(args[0]); n < 1 || n > 255 {
			return misused(cmd, fmt.Sprintf("the name of a queue has 1 to 255 octets, this one has %d", n), "see: pawl queues list")
		}
		if !cmd.Flags().Changed("archive") {
			return misused(cmd, "what to set is missing", "pass --archive=true or --archive=false")
		}
		return nil
	}
	return set.on(cmd)
}

// queueVerb is a verb whose argument is a queue. It always finds one.
func queueVerb(done func(args []string, r ops.Result) string, do func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error)) verb {
	return verb{arguments: 1, locked: "the queue is being set in another open transaction", do: do, done: done,
		what: func(args []string) string { return "queue " + args[0] },
		why: func(args []string, r ops.Result) (why, next string) {
			return "queue " + args[0] + ": " + string(r.Outcome), ""
		}}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
