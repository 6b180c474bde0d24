package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

type jobChange struct {
	*change
	verb  operator.Verb
	only  []ops.Status
	many  bool // jobs may be selected, too
	fence int64
	bulkFlags
}

func (d jobsGroup) newVerb(verb operator.Verb) *cobra.Command {
	f := jobChange{verb: verb, only: d.only}
	use, help := " ID...", []string{"Each job is changed in its own transaction, and its audit record has the job before and after. The exit code is 1 if a job could not be changed; the others are changed."}
	if f.many = d.only != nil && verb.Jobs != nil; f.many {
		use = " [ID...]"
		help = append(help, "Instead of IDs you can select dead letters by queue, kind, error and age. All that match at the start are changed by id, 200 a "+
			"transaction, each with its own audit record. It asks or needs --yes. After an interruption, run it again for the rest.")
	}
	cmd := describe(d.name, verb, use)
	cmd.Long += "\n\n" + wrap(help...)
	if f.many {
		addBulkFlags(cmd, &f.bulkFlags, verb)
		cmd.Example += fmt.Sprintf("\n  pawl %s %s --queue orders --error 'connection refused' --dry-run", d.name, verb.Command)
	}
	f.change = addChange(cmd, verb.Warning != "" || verb.Doubles || f.many)
	cmd.Flags().Int64Var(&f.fence, verb.Seen[0].Flag, 0, verb.Seen[0].Label)
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
	return f.change.run(cmd, f.verb.Command+" "+counted(ids), f.verb.Warning, func(ctx context.Context, conn *pgx.Conn, by ops.By) error {
		if err := f.askOfDoubles(ctx, cmd, conn, ids); err != nil {
			return err
		}
		return several[int64]{change: f.change, asked: ids, text: jobChanged, miss: jobMissed}.run(cmd, func(id int64) (ops.Result, error) {
			r, err := f.verb.Job(ops.JobRef{ID: id, Fence: f.fence, Statuses: f.only}, ctx, conn, by)
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

// askOfDoubles asks for consent before a job may take effect a second time.
func (f jobChange) askOfDoubles(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, ids []int64) error {
	if !f.verb.Doubles || f.yes || f.dryRun {
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
	return f.ask(ctx, cmd, conn, f.verb.Command+" "+counted(doubles), warning)
}

// danger says why a job may take effect a second time.
func danger(j ops.Job) string {
	name := fmt.Sprintf("job %d", j.ID)
	if j.Key != "" {
		name += " (" + j.Key + ")"
	}
	switch pawl.Code(j.LastCode) {
	case pawl.CodeDeliveryStale:
		return name + " is older than the retention period and may have taken effect before"
	case pawl.CodeCommitUnknown:
		return name + " may have written its rows before it failed: its handler ended the transaction itself"
	}
	return name + " has a known key with another payload and would run in addition to the first"
}

// counted returns the number of jobs and the ids of the first few.
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
