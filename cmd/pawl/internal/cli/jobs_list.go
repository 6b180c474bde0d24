package cli

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

// Widths of columns, in characters. --json and show print everything.
const (
	nameWidth   = 32
	errorWidth  = 60
	letterWidth = 44 // of a dead letter's error, so that its table stays within 120 columns
)

func (d jobsGroup) newList() *cobra.Command {
	s := ops.Jobs{Statuses: d.only}
	cmd := &cobra.Command{Use: "list", Short: "List jobs by id, oldest first"}
	cmd.Example = fmt.Sprintf("  pawl %[1]s list --queue orders --kind charge\n  pawl %[1]s list --after 1200 --limit 200\n"+
		"  pawl %[1]s list --json | jq -r '.jobs[].id'", d.name)
	flags := cmd.Flags()
	flags.StringVar(&s.Queue, "queue", "", "only of this queue")
	flags.StringVar(&s.Kind, "kind", "", "only of this kind")
	l := list[ops.Job]{name: "jobs", flag: "queue", named: &s.Queue,
		read: func() pager[ops.Job] { return s.List }}
	l.heading = []string{"ID", "QUEUE", "KIND", "STATUS", "ATTEMPTS", "CRASHES", "AGE"}
	if d.only == nil {
		l.check = addStatusFlag(cmd, &s.Statuses, ops.JobStatuses())
		l.heading = append(l.heading, "DUE", "WORKER", "LAST ERROR")
		l.row = func(j ops.Job) []string {
			return append(jobCells(j), due(j), cell(j.Worker, nameWidth), cell(j.LastError, errorWidth))
		}
	} else { // dead letters have no worker and no due time
		l.heading = append(l.heading, "KEY", "LAST ERROR")
		l.row = func(j ops.Job) []string {
			return append(jobCells(j), cell(j.Key, nameWidth), cell(j.LastError, letterWidth))
		}
		l.after = warnOfCrashes
	}
	return l.on(cmd, &s.Limit, &s.After)
}

// jobCells are the cells common to lists of jobs.
func jobCells(j ops.Job) []string {
	return []string{strconv.FormatInt(j.ID, 10), cell(j.Queue, nameWidth), cell(j.Kind, nameWidth), string(j.Status),
		fmt.Sprintf("%d/%d", j.Attempts, j.MaxAttempts), strconv.Itoa(j.Crashes), span(j.ReadAt.Sub(j.CreatedAt))}
}

func warnOfCrashes(cmd *cobra.Command, jobs []ops.Job) {
	if slices.ContainsFunc(jobs, func(j ops.Job) bool { return j.Crashes > 0 }) {
		progress(cmd)("jobs with crashes lost their process while they ran: their calls to other systems may have been executed; see pawl dlq show ID before you retry or discard one")
	}
}

func cell(s string, width int) string {
	if s == "" {
		return "-"
	}
	return shorten(text.Visible(s), width)
}

// due is the time when a pending job is due. Jobs in other statuses do not wait for a time.
func due(j ops.Job) string {
	switch {
	case j.Status != ops.StatusPending:
		return "-"
	case j.AvailableAt.After(j.ReadAt):
		return "in " + span(j.AvailableAt.Sub(j.ReadAt))
	}
	return "now"
}
