package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

func newQueues() *cobra.Command {
	cmd := group("queues", "Pause, drain and resume queues, and show their settings")
	cmd.Long = `A queue needs no setup: one that is not listed has no jobs and the defaults.

  mode      running    workers claim due jobs
            draining   they claim only retries
            paused     they claim nothing
  archive   off        a finished job is deleted with its payload
            on         it is kept for seven days: pawl jobs show ID, view pawl_v1.archive

In every mode, running jobs finish, and jobs can be enqueued. A mode applies to all claims that start after it was set, in every
process. A worker notices that a queue was resumed at its next poll, by default within half a second.`
	cmd.Example = `  pawl queues pause orders --reason 'the stock service is down'
  pawl queues resume orders --reason 'it is back'
  pawl queues drain orders --reason 'version 7 makes other calls'
  pawl queues list                                         # PROCESSING and BEGUN 0: drained
  pawl queues set orders --archive=true --reason 'the auditors ask for a week'`
	cmd.AddCommand(newQueuesList(), newQueuesSet())
	addVerbs(cmd, operator.Queues)
	return cmd
}

func newQueuesList() *cobra.Command {
	var s ops.Queues
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the queues that have jobs or settings, by name",
		Example: "  pawl queues list\n  pawl queues list --json | jq -r '.queues[] | select(.mode == \"paused\").name'",
	}
	return list[ops.Queue]{name: "queues", none: "no queue has jobs or settings", row: queueCells,
		heading: []string{"QUEUE", "MODE", "ARCHIVE", "DUE", "LATER", "WAITING", "PROCESSING", "BEGUN", "DEAD"},
		read:    func() pager[ops.Queue] { return s.List },
	}.on(cmd, &s.Limit, &s.After)
}

func queueCells(q ops.Queue) []string {
	return []string{cell(q.Name, nameWidth), q.Mode, onOff(q.Archive), strconv.Itoa(q.Due), strconv.Itoa(q.Later), strconv.Itoa(q.Waiting),
		strconv.Itoa(q.Processing), strconv.Itoa(q.Begun), strconv.Itoa(q.Dead)}
}

// newQueuesSet makes one command of the two verbs that switch a queue's archive on and off.
func newQueuesSet() *cobra.Command {
	var cmd *cobra.Command
	var archive bool
	keep, drop := operator.Named("queue_archive_on"), operator.Named("queue_archive_off")
	v := keep
	v.Short = "Set whether a queue keeps its finished jobs for seven days"
	v.Effect = "The setting applies to all jobs of a queue."
	v.More = "--archive=true: " + keep.Effect + " Consider who may read them.\n\n--archive=false: " + drop.Effect
	v.Example = "orders --archive=true --reason 'the auditors ask for a week'"
	v.Check = func(p operator.Values) (wrong, next string) {
		if n := len(p("name")); n < 1 || n > 255 {
			return fmt.Sprintf("the name of a queue has 1 to 255 octets, this one has %d", n), "see: pawl queues list"
		}
		if !cmd.Flags().Changed("archive") {
			return "the setting is missing", "pass --archive=true or --archive=false"
		}
		return "", ""
	}
	v.Do = func(ctx context.Context, db pawl.DB, p operator.Values, by ops.By) (ops.Result, error) {
		if archive {
			return keep.Do(ctx, db, p, by)
		}
		return drop.Do(ctx, db, p, by)
	}
	cmd = newVerb(v)
	cmd.Use = "set QUEUE --archive=BOOL --reason TEXT"
	cmd.Flags().BoolVar(&archive, "archive", false, "keep finished jobs for seven days; required")
	return cmd
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
