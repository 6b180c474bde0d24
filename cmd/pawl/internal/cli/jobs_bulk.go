package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/ops"
)

// bulkFlags select dead letters instead of naming them.
type bulkFlags struct {
	filter      ops.Filter
	all, dryRun bool
	doubles     bool // also those that may take effect a second time
}

func addBulkFlags(cmd *cobra.Command, b *bulkFlags, verb change) {
	flags := cmd.Flags()
	flags.StringVar(&b.filter.Queue, "queue", "", "all of this queue, instead of IDs")
	flags.StringVar(&b.filter.Kind, "kind", "", "all of this kind")
	flags.StringVar(&b.filter.Error, "error", "", "all whose last error holds this text")
	flags.DurationVar(&b.filter.OlderThan, "older-than", 0, "all that were enqueued longer ago than this, as 720h")
	flags.BoolVar(&b.all, "all", false, "all there are")
	flags.BoolVar(&b.dryRun, "dry-run", false, "with these: count them, and change nothing")
	if verb.mayDouble {
		flags.BoolVar(&b.doubles, "include-duplicates", false, "with these: also those that may take effect a second time; else they are left out, and counted")
	}
}

// given reports whether jobs were selected, not named.
func (b bulkFlags) given() bool {
	return b.all || b.dryRun || b.filter.Queue != "" || b.filter.Kind != "" || b.filter.Error != "" || b.filter.OlderThan != 0
}

// what names the jobs of a selection.
func (b bulkFlags) what() string {
	what := "dead letters"
	if b.filter.Kind != "" {
		what += " of kind " + b.filter.Kind
	}
	if b.filter.Queue != "" {
		what += " of queue " + b.filter.Queue
	}
	if b.filter.Error != "" {
		what += fmt.Sprintf(" whose last error holds %q", b.filter.Error)
	}
	if b.filter.OlderThan != 0 {
		what += " older than " + b.filter.OlderThan.String()
	}
	return what
}

// bulk changes all jobs of a selection.
func (f changeFlags) bulk(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return misused(cmd, "jobs are named or selected, not both", "leave out the ids, or --queue, --kind, --error, --older-than, --all and --dry-run")
	}
	if f.bulkFlags.filter.OlderThan < 0 {
		return misused(cmd, "--older-than is negative", "as in: --older-than 720h")
	}
	if !f.dryRun {
		if err := checkBy(cmd, &f.by); err != nil {
			return err
		}
		if !*f.yes && !mayAsk(cmd) { // who selects does not see what is selected
			return misused(cmd, fmt.Sprintf("this would %s all %s", f.verb.name, f.what()), "add --yes, or --dry-run")
		}
	}
	return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
		filter := f.bulkFlags.filter
		filter.Statuses = []ops.Status{ops.StatusDeadLetter}
		all, err := ops.Count(ctx, conn, filter)
		if err != nil {
			return err
		}
		filter.NoDoubles = f.verb.mayDouble
		plain, err := ops.Count(ctx, conn, filter)
		if err != nil {
			return err
		}
		n, leftOut := plain, all-plain
		if f.doubles {
			filter.NoDoubles, n, leftOut = false, all, 0
		}
		if leftOut > 0 {
			progress(cmd)(fmt.Sprintf("left out: %d that may take effect a second time; pawl stale says why, --include-duplicates takes them along", leftOut))
		}
		if f.dryRun {
			return f.printBulk(cmd, ops.Bulk{Matched: n}, leftOut)
		}
		what := fmt.Sprintf("%s %d %s", f.verb.name, n, f.what())
		if n > 0 && !*f.yes && !agreed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question(conn, what, f.bulkWarning(all-plain))) {
			return failed(cmd, errNotAgreed, "answer y, or add --yes")
		}
		b, err := f.verb.bulk(ctx, conn, filter, f.by, seconds(func(b ops.Bulk) {
			progress(cmd)(fmt.Sprintf("%d of %d", b.Seen(), b.Matched))
		}))
		if printed := f.printBulk(cmd, b, leftOut); printed != nil || err != nil {
			return errors.Join(err, printed)
		}
		if left := b.Seen() - b.Done; left > 0 {
			return failed(cmd, fmt.Errorf("not done for %d of %d: %d changed by others, %d gone, %d locked", left, b.Seen(), b.Refused, b.Absent, b.Locked),
				"run it again for those that are still dead letters")
		}
		return nil
	})
}

func (f changeFlags) bulkWarning(doubles int) string {
	if f.verb.warning != "" {
		return f.verb.warning
	}
	if f.doubles && doubles > 0 {
		return fmt.Sprintf("they all become due now, and %d of them may take effect a second time", doubles)
	}
	return "they all become due now"
}

func (f changeFlags) printBulk(cmd *cobra.Command, b ops.Bulk, leftOut int) (err error) {
	switch {
	case *f.json:
		return printJSON(cmd.OutOrStdout(), bulkJSON{f.dryRun, b.Matched, b.Done, b.Refused, b.Absent, b.Locked, leftOut})
	case f.dryRun:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "would %s %d %s\n", f.verb.name, b.Matched, visible(f.what()))
	default:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d of %d %s %s\n", b.Done, b.Matched, visible(f.what()), f.verb.done)
	}
	return err
}

type bulkJSON struct {
	DryRun  bool `json:"dry_run"`
	Matched int  `json:"matched"` // when it began
	Done    int  `json:"done"`
	Refused int  `json:"refused"`  // changed by others in between
	Absent  int  `json:"absent"`   // gone in between
	Locked  int  `json:"locked"`   // by an open transaction
	LeftOut int  `json:"left_out"` // they may take effect a second time: see --include-duplicates
}
