package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/ops"
)

func newQueues() *cobra.Command {
	cmd := group("queues", "Pause, drain and resume queues, and look at what was set for them")
	cmd.Long = `A queue needs no setting up: one that is not listed has the defaults.

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
	cmd.AddCommand(newQueuesList(), newQueuesMode("pause", "Claim nothing of a queue", ops.QueuePaused),
		newQueuesMode("drain", "Claim of a queue only what was tried before", ops.QueueDraining),
		newQueuesMode("resume", "Claim again all that is due", ops.QueueRunning), newQueuesSet())
	return cmd
}

func newQueuesList() *cobra.Command {
	var f ops.QueueFilter
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the queues for which something was set, by name",
		Args:    noArgs,
		Example: "  pawl queues list\n  pawl queues list --json | jq -r '.queues[] | select(.mode == \"paused\").name'",
	}
	flags := cmd.Flags()
	flags.IntVar(&f.Limit, "limit", 50, "queues at most, 1 to 1000")
	flags.StringVar(&f.After, "after", "", "only names behind this one: the last of the page before")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkLimit(cmd, f.Limit); err != nil {
			return err
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			queues, err := ops.Queues(ctx, conn, f)
			if err != nil {
				return err
			}
			var next *string
			if len(queues) == f.Limit {
				next = &queues[len(queues)-1].Name
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), queuesJSON{each(queues, queueToJSON), next})
			}
			return printQueues(cmd, queues, next)
		})
	}
	return cmd
}

func printQueues(cmd *cobra.Command, queues []ops.Queue, next *string) error {
	if len(queues) == 0 {
		progress(cmd)("nothing was set for any queue; those with jobs: pawl status")
		return nil
	}
	rows := make([][]string, len(queues))
	for i, q := range queues {
		rows[i] = []string{strconv.FormatInt(q.ID, 10), cell(q.Name, nameWidth), string(q.Mode), onOff(q.Archive), strconv.Itoa(q.Processing), strconv.Itoa(q.Begun)}
	}
	if err := printTable(cmd.OutOrStdout(), []string{"ID", "QUEUE", "MODE", "ARCHIVE", "PROCESSING", "BEGUN"}, rows); err != nil {
		return err
	}
	if next != nil {
		progress(cmd)("there may be more: add --after " + visible(*next))
	}
	return nil
}

// newQueuesMode is a command that sets what may be claimed of a queue.
func newQueuesMode(name, short string, mode ops.QueueMode) *cobra.Command {
	cmd := &cobra.Command{
		Use:     name + " QUEUE --reason TEXT",
		Short:   short,
		Long:    short + ", from now on, in every process; the queue need not have had a job. See: pawl queues --help. Who and why go to pawl.audit.",
		Example: "  pawl queues " + name + " orders --reason 'the stock service was down from 9 to 10'",
	}
	return verb{arguments: 1, what: func(args []string) string { return "queue " + args[0] }, locked: "somebody else sets this queue in an open transaction",
		do: func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (answer, error) {
			r, err := ops.SetQueue(ctx, conn, args[0], ops.QueueOptions{Mode: mode}, by)
			a := answer{json: queueModeJSON{string(r.Outcome), string(r.Was.Mode)}, done: fmt.Sprintf("queue %s %s (was %s)", visible(args[0]), mode, r.Was.Mode)}
			if !r.Changed() {
				a.done = fmt.Sprintf("queue %s %s already", visible(args[0]), mode)
			}
			return a, err
		}}.on(cmd)
}

func newQueuesSet() *cobra.Command {
	var by ops.By
	var archive bool
	cmd := &cobra.Command{
		Use:   "set QUEUE --archive=BOOL --reason TEXT",
		Short: "Set whether a queue keeps its finished jobs for seven days",
		Long: `Sets what holds for all jobs of a queue from now on; the queue need not have had one. What is in the archive stays there until
it is seven days old. Payloads are kept too: think of who may read them. Who and why go to pawl.audit.`,
		Example: "  pawl queues set orders --archive=true --reason 'the auditors ask for a week'",
	}
	cmd.Flags().BoolVar(&archive, "archive", false, "keep finished jobs for seven days; required")
	addByFlags(cmd, &by)
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return misused(cmd, fmt.Sprintf("it takes 1 argument, not %d", len(args)), "as in: "+cmd.UseLine())
		}
		if n := len(args[0]); n < 1 || n > 255 {
			return misused(cmd, fmt.Sprintf("the name of a queue has 1 to 255 octets, this one has %d", n), "see: pawl jobs list")
		}
		if !cmd.Flags().Changed("archive") {
			return misused(cmd, "what to set is missing", "pass --archive=true or --archive=false")
		}
		if err := checkBy(cmd, &by); err != nil {
			return err
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			r, err := ops.SetQueue(ctx, conn, args[0], ops.QueueOptions{Archive: &archive}, by)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), queueResultJSON{string(r.Outcome), r.Was.Archive})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "queue %s %s (archive was %s)\n", visible(args[0]), r.Outcome, onOff(r.Was.Archive))
			return err
		})
	}
	return cmd
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

type queuesJSON struct {
	Queues    []queueJSON `json:"queues"`
	NextAfter *string     `json:"next_after"` // for --after; null: that was all
}

type queueJSON struct {
	ID         int64  `json:"id"`
	Name       string `json:"name"`
	Mode       string `json:"mode"` // running, draining, paused
	Archive    bool   `json:"archive"`
	Processing int    `json:"processing"`
	Begun      int    `json:"begun"` // tried before, waiting for another try
}

func queueToJSON(q ops.Queue) queueJSON {
	return queueJSON{q.ID, q.Name, string(q.Mode), q.Archive, q.Processing, q.Begun}
}

type queueModeJSON struct {
	Outcome string `json:"outcome"` // changed, unchanged
	Was     string `json:"was"`     // the mode
}

type queueResultJSON struct {
	Outcome    string `json:"outcome"` // changed, unchanged
	WasArchive bool   `json:"was_archive"`
}
