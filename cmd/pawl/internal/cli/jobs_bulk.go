package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

// bulkFlags select dead letters instead of naming them.
type bulkFlags struct {
	sel     ops.Jobs
	all     bool
	doubles bool // also those that may take effect a second time
}

func addBulkFlags(cmd *cobra.Command, b *bulkFlags, verb operator.Verb) {
	flags := cmd.Flags()
	flags.StringVar(&b.sel.Queue, "queue", "", "instead of IDs: all of this queue")
	flags.StringVar(&b.sel.Kind, "kind", "", "all of this kind")
	flags.StringVar(&b.sel.Error, "error", "", "all whose last error contains this text")
	flags.DurationVar(&b.sel.OlderThan, "older-than", 0, "all that were enqueued longer ago than this, such as 720h")
	flags.BoolVar(&b.all, "all", false, "all dead letters")
	if verb.Doubles {
		flags.BoolVar(&b.doubles, "include-duplicates", false, "with a selection: also those that may take effect a second time; by default they are left out, and counted")
	}
}

// selects reports whether jobs were selected instead of named.
func (f jobChange) selects(args []string) bool {
	b := f.bulkFlags
	return f.many && f.dryRun && len(args) == 0 || b.all || b.sel.Queue != "" || b.sel.Kind != "" || b.sel.Error != "" || b.sel.OlderThan != 0
}

func (f jobChange) bulk(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return misused(cmd, "jobs are named or selected, not both", "leave out the ids, or --queue, --kind, --error, --older-than and --all")
	}
	if f.sel.OlderThan < 0 {
		return misused(cmd, "--older-than is negative", "as in: --older-than 720h")
	}
	if !f.dryRun {
		if err := f.checkBy(cmd); err != nil {
			return err
		}
		// always asks: a selection does not show its jobs
		if err := f.mayAsk(cmd, f.verb.Command+" all "+operator.Selection(f.sel), f.bulkWarning(0)); err != nil {
			return err
		}
	}
	return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error { return f.bulkIn(ctx, cmd, conn) })
}

func (f jobChange) bulkIn(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn) error {
	sel := f.sel
	sel.Statuses = []ops.Status{ops.StatusDeadLetter}
	all, err := sel.Count(ctx, conn)
	if err != nil {
		return err
	}
	sel.NoDoubles = f.verb.Doubles
	plain, err := sel.Count(ctx, conn)
	if err != nil {
		return err
	}
	n, leftOut := plain, all-plain
	if f.doubles {
		sel.NoDoubles, n, leftOut = false, all, 0
	}
	if leftOut > 0 {
		progress(cmd)(fmt.Sprintf("left out: %d that may take effect a second time; pawl stale says why, --include-duplicates includes them", leftOut))
	}
	by := ops.DryRun
	if !f.dryRun {
		by = f.by
	}
	if n > 0 {
		if err := f.ask(ctx, cmd, conn, fmt.Sprintf("%s %d %s", f.verb.Command, n, operator.Selection(f.sel)), f.bulkWarning(all-plain)); err != nil {
			return err
		}
	}
	t, err := f.verb.Jobs(sel, ctx, conn, by, seconds(func(t ops.Tally) {
		progress(cmd)(fmt.Sprintf("%d of %d", t.Seen(), t.Matched))
	}))
	if printed := f.printBulk(cmd, t, leftOut); printed != nil || err != nil {
		return errors.Join(err, printed)
	}
	if all == 0 {
		if err := f.elsewhere(ctx, cmd, conn); err != nil {
			return err
		}
	}
	if left := t.Seen() - t.Done; left > 0 {
		return failed(cmd, fmt.Errorf("not done for %d of %d: %d changed by others, %d gone, %d locked", left, t.Seen(), t.Refused, t.Absent, t.Locked),
			"run it again for those that are still dead letters")
	}
	return nil
}

// elsewhere says under which other queues there are dead letters of the selection.
func (f jobChange) elsewhere(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn) error {
	sel := f.sel
	sel.Statuses = []ops.Status{ops.StatusDeadLetter}
	elsewhere, err := foundWith("queue", f.sel.Queue, func(other string) (string, error) {
		sel.Queue = other
		n, err := sel.Count(ctx, conn)
		return strconv.Itoa(n), err
	})
	if elsewhere != "" {
		progress(cmd)(elsewhere)
	}
	return err
}

func (f jobChange) bulkWarning(doubles int) string {
	if f.verb.Warning != "" {
		return f.verb.Warning
	}
	if f.doubles && doubles > 0 {
		return fmt.Sprintf("they all become due now, and %d of them may take effect a second time", doubles)
	}
	return "they all become due now"
}

func (f jobChange) printBulk(cmd *cobra.Command, t ops.Tally, leftOut int) (err error) {
	switch {
	case *f.json:
		return printJSON(cmd.OutOrStdout(), struct {
			ops.Tally
			LeftOut int `json:"left_out"` // may take effect a second time: see --include-duplicates
		}{t, leftOut})
	case f.dryRun:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "would %s %d %s\n", f.verb.Command, t.Matched, text.Visible(operator.Selection(f.sel)))
	default:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d of %d %s %s\n", t.Done, t.Matched, text.Visible(operator.Selection(f.sel)), f.verb.Outcome)
	}
	return err
}
