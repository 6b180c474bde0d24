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
	cmd := group("queues", "Look at what was set for queues, and set it")
	cmd.Long = `A queue needs no setting up: one that is not listed has the defaults.

  archive   off   a finished job is deleted, payload and all
            on    it is kept for seven days: pawl jobs show ID, view pawl_v1.archive`
	cmd.Example = `  pawl queues list
  pawl queues set orders --archive=true --reason 'the auditors ask for a week'`
	cmd.AddCommand(newQueuesList(), newQueuesSet())
	return cmd
}

func newQueuesList() *cobra.Command {
	var f ops.QueueFilter
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the queues for which something was set, by name",
		Args:    noArgs,
		Example: "  pawl queues list\n  pawl queues list --json | jq -r '.queues[] | select(.archive).name'",
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
		progress(cmd)("nothing was set for any queue")
		return nil
	}
	rows := make([][]string, len(queues))
	for i, q := range queues {
		rows[i] = []string{strconv.FormatInt(q.ID, 10), cell(q.Name, nameWidth), onOff(q.Archive)}
	}
	if err := printTable(cmd.OutOrStdout(), []string{"ID", "QUEUE", "ARCHIVE"}, rows); err != nil {
		return err
	}
	if next != nil {
		progress(cmd)("there may be more: add --after " + visible(*next))
	}
	return nil
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
	ID      int64  `json:"id"`
	Name    string `json:"name"`
	Archive bool   `json:"archive"`
}

func queueToJSON(q ops.Queue) queueJSON { return queueJSON(q) }

type queueResultJSON struct {
	Outcome    string `json:"outcome"` // changed, unchanged
	WasArchive bool   `json:"was_archive"`
}
