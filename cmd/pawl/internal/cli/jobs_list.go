package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/ops"
)

// Characters of a column; --json and show have all.
const (
	nameWidth   = 32
	errorWidth  = 60
	letterWidth = 44 // of the error of a dead letter: its table has a column more, and stays within 120
)

type listFlags struct {
	filter  ops.Filter
	status  []string
	letters bool // only dead letters, which no worker has and no time brings back
	json    *bool
}

func (d door) newList() *cobra.Command {
	f := listFlags{filter: ops.Filter{Statuses: d.only}, letters: d.only != nil}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs by id, oldest first",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.Example = fmt.Sprintf("  pawl %[1]s list --queue orders --kind charge\n  pawl %[1]s list --after 1200 --limit 200\n"+
		"  pawl %[1]s list --json | jq -r '.jobs[].id'", d.name)
	flags := cmd.Flags()
	flags.StringVar(&f.filter.Queue, "queue", "", "only of this queue")
	flags.StringVar(&f.filter.Kind, "kind", "", "only of this kind")
	if d.only == nil {
		flags.StringSliceVar(&f.status, "status", nil,
			"only in this status; several with commas: pending, waiting, processing, unknown, dead_letter, cancelled")
	}
	flags.IntVar(&f.filter.Limit, "limit", 50, "jobs at most, 1 to 1000")
	flags.Int64Var(&f.filter.After, "after", 0, "only ids above this one: the last id of the page before")
	f.json = addJSONFlag(cmd)
	return cmd
}

func (f listFlags) run(cmd *cobra.Command) error {
	for _, s := range f.status {
		f.filter.Statuses = append(f.filter.Statuses, ops.Status(s))
	}
	if err := cmp.Or(checkLimit(cmd, f.filter.Limit), checkAfter(cmd, f.filter.After), checkStatuses(cmd, ops.Statuses(), f.filter.Statuses...)); err != nil {
		return err
	}
	return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
		jobs, err := ops.List(ctx, conn, f.filter)
		if err != nil {
			return err
		}
		var next *int64
		if len(jobs) == f.filter.Limit {
			next = &jobs[len(jobs)-1].ID
		}
		if *f.json {
			return printJSON(cmd.OutOrStdout(), pageJSON{each(jobs, jobToJSON), next})
		}
		return f.print(cmd, jobs, next)
	})
}

func (f listFlags) print(cmd *cobra.Command, jobs []ops.Job, next *int64) error {
	if len(jobs) == 0 {
		progress(cmd)("no jobs")
		return nil
	}
	heading := []string{"ID", "QUEUE", "KIND", "STATUS", "ATTEMPTS", "CRASHES", "AGE"}
	if f.letters {
		heading = append(heading, "KEY", "LAST ERROR")
	} else {
		heading = append(heading, "DUE", "WORKER", "LAST ERROR")
	}
	rows := make([][]string, len(jobs))
	for i, j := range jobs {
		rows[i] = []string{strconv.FormatInt(j.ID, 10), cell(j.Queue, nameWidth), cell(j.Kind, nameWidth), string(j.Status),
			fmt.Sprintf("%d/%d", j.Attempts, j.MaxAttempts), strconv.Itoa(j.Crashes), span(j.ReadAt.Sub(j.CreatedAt))}
		if f.letters {
			rows[i] = append(rows[i], cell(j.MessageKey, nameWidth), cell(j.LastError, letterWidth))
		} else {
			rows[i] = append(rows[i], due(j), cell(j.Worker, nameWidth), cell(j.LastError, errorWidth))
		}
	}
	if err := printTable(cmd.OutOrStdout(), heading, rows); err != nil {
		return err
	}
	if f.letters && slices.ContainsFunc(jobs, func(j ops.Job) bool { return j.Crashes > 0 }) {
		progress(cmd)("those with crashes died while they ran: what they asked of other systems may have happened; see pawl dlq show ID before you retry or discard one")
	}
	sayMore(cmd, next)
	return nil
}

func cell(text string, width int) string {
	if text == "" {
		return "-"
	}
	return shorten(visible(text), width)
}

// due is when a pending job is tried; the others wait for something else than time.
func due(j ops.Job) string {
	switch {
	case j.Status != ops.StatusPending:
		return "-"
	case j.AvailableAt.After(j.ReadAt):
		return "in " + span(j.AvailableAt.Sub(j.ReadAt))
	}
	return "now"
}
