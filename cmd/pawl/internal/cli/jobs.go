package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/ops"
)

// idLimit bounds the jobs of one command.
const idLimit = 1000

// A jobsGroup is a group of commands about jobs: about all of them, or only about those in certain
// statuses.
type jobsGroup struct {
	name string
	only []ops.Status
}

func newJobs() *cobra.Command {
	d := jobsGroup{name: "jobs"}
	cmd := group(d.name, "Look at jobs, and retry, cancel or discard them with a record of who and why")
	cmd.Long = `Shows jobs and changes them by hand. Each change is one transaction. It locks the job, raises its fence, so that an attempt still
running cannot commit, and records who did it and why in pawl.audit. Changes need the role pawl_operator; to look,
pawl_reader is enough.

              retry            cancel            discard
  pending     due now          cancelled         deleted
  waiting     refused          cancelled         deleted
  processing  refused          cancelled         refused: cancel it first
  dead_letter due now          refused: ended    deleted
  cancelled   due now          refused: ended    deleted
  unknown     refused          refused           refused: needs a verdict`
	cmd.Example = `  pawl jobs list --status processing --queue orders
  pawl jobs show 17
  pawl jobs cancel 17 --reason 'sent twice by mistake' --yes`
	d.addTo(cmd)
	return cmd
}

func newDLQ() *cobra.Command {
	d := jobsGroup{name: "dlq", only: []ops.Status{ops.StatusDeadLetter, ops.StatusUnknown}}
	cmd := group(d.name, "Look at dead letters, and retry or discard them")
	cmd.Long = `Dead letters are jobs that are not retried until you decide: all their attempts are used, or their handler returned a final error.
These commands are those of pawl jobs for dead letters only: a job that was retried in the meantime is left
alone.`
	cmd.Example = `  pawl dlq list --queue inbox/orders
  pawl dlq show 17
  pawl dlq retry 17 18 --reason 'the stock service is back'
  pawl dlq list --json | jq -r '.jobs[].id' | xargs -r pawl dlq retry --reason 'the stock service is back'`
	d.addTo(cmd)
	return cmd
}

// addTo adds the commands to the group. The group dlq has only the verbs that can select dead
// letters.
func (d jobsGroup) addTo(group *cobra.Command) {
	group.AddCommand(d.newList(), d.newShow())
	for _, v := range operator.Jobs.Verbs() {
		if d.only == nil || v.Jobs != nil {
			group.AddCommand(d.newVerb(v))
		}
	}
}

// withSchema connects and checks that the schema fits this build.
func withSchema(cmd *cobra.Command, do func(ctx context.Context, conn *pgx.Conn) error) error {
	return withDatabase(cmd, func(ctx context.Context, conn *pgx.Conn) error {
		err := migrate.Check(ctx, conn)
		if err == nil {
			err = do(ctx, conn)
		}
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "42501" {
			user := pgx.Identifier{conn.Config().User}.Sanitize()
			return failed(cmd, fmt.Errorf("user %s: %s", user, pg.Message),
				"to look, grant pawl_reader to "+user+"; to change, grant pawl_operator; pawl migrate up --roles makes them")
		}
		return err
	})
}

// jobIDs reads the arguments and removes repeated ids.
func jobIDs(cmd *cobra.Command, args []string) (ids []int64, err error) {
	if len(args) == 0 {
		return nil, misused(cmd, "the id of the job is missing", "pass one or more ids, as in: "+cmd.CommandPath()+" 17")
	}
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id < 1 {
			return nil, misused(cmd, fmt.Sprintf("%q is not the id of a job", arg), "ids are whole numbers, see: "+lister(cmd))
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) > idLimit {
		return nil, misused(cmd, fmt.Sprintf("%d jobs in one command", len(ids)), fmt.Sprintf("pass at most %d", idLimit))
	}
	return ids, nil
}

// lister names the list command of the same group.
func lister(cmd *cobra.Command) string { return cmd.Parent().CommandPath() + " list" }

// span formats a duration in its largest unit: 7s, 12m, 3h, 40d.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(max(d, 0).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// when formats a time and its distance from now.
func when(at, now time.Time) string {
	distance := span(now.Sub(at)) + " ago"
	if at.After(now) {
		distance = "in " + span(at.Sub(now))
	}
	return at.UTC().Format(time.RFC3339) + " (" + distance + ")"
}
