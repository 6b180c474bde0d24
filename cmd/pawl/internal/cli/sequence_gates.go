package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func newGates() *cobra.Command {
	cmd := group("sequence-gates", "Look at sequence gates, say where one stands, and give up what is missing")
	cmd.Long = `A gate lets the deliveries of a resource take effect in the order of the numbers that their senders gave them. A strict gate holds
what comes early, until the numbers before it have come. If they never come, or the sender has begun anew, you must decide:

  they can be sent again   have them sent: the gate goes on by itself
  they are lost            pawl sequence-gates release: the lowest number that is held is next
  the numbers begin anew   pawl sequence-gates reset: you say which number took effect last`
	cmd.Example = `  pawl sequence-gates list --held
  pawl sequence-gates release orders 'account 7' --reason 'the sender lost 42, see their ticket 1234' --yes
  pawl sequence-gates reset orders 'account 7' 0 --reason 'they count from 1 again' --yes`
	cmd.AddCommand(newGatesList(), newGatesReset(), newGatesRelease())
	return cmd
}

func newGatesList() *cobra.Command {
	var s ops.SequenceGates
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List gates, by consumer and resource",
		Example: "  pawl sequence-gates list --held\n  pawl sequence-gates list --consumer orders --limit 200\n  pawl sequence-gates list --held --json | jq -r '.gates[].resource'",
	}
	flags := cmd.Flags()
	flags.StringVar(&s.Consumer, "consumer", "", "only of this consumer")
	flags.BoolVar(&s.Held, "held", false, "only those at which something is held")
	return list[ops.SequenceGate]{name: "gates", row: gateCells,
		heading: []string{"CONSUMER", "RESOURCE", "LAST", "HELD", "NEXT", "SINCE"},
		read: func(ctx context.Context, conn *pgx.Conn) (ops.Page[ops.SequenceGate], error) {
			return s.List(ctx, conn)
		},
	}.on(cmd, &s.Limit, &s.After)
}

func gateCells(g ops.SequenceGate) []string {
	since := "-"
	if g.Held > 0 {
		since = span(g.ReadAt.Sub(g.Since))
	}
	return []string{cell(g.Consumer, nameWidth), cell(g.Resource, nameWidth), number(g.Last), strconv.Itoa(g.Held), number(g.NextHeld), since}
}

func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

func newGatesReset() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset CONSUMER RESOURCE LAST --reason TEXT",
		Short: "Say where a gate stands: the next number is LAST + 1",
		Long: `Says which number took effect last: for a strict gate that does not know where to begin, or after a sender has begun its numbers
anew. What is held up to LAST + 1 is due at once; what is not higher than LAST is dropped. Who and why go to pawl.audit.`,
		Example: "  pawl sequence-gates reset orders 'account 7' 41 --reason 'their numbers begin at 42' --yes\n  pawl sequence-gates reset --reason 'they begin at 0' --yes -- orders 'account 7' -1",
	}
	var last int64
	var from *int64
	addNumberFlag(cmd, "from", "where the gate stood when you looked: if it has moved since, nothing changes", &from)
	reset := gateVerb("whatever has a number up to LAST is dropped",
		func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error) {
			return ops.SequenceGateRef{Consumer: args[0], Resource: args[1], Last: from}.Reset(ctx, conn, last, by)
		})
	reset.arguments = 3
	reset.check = func(cmd *cobra.Command, args []string) (err error) {
		if last, err = strconv.ParseInt(args[2], 10, 64); err != nil {
			return misused(cmd, fmt.Sprintf("LAST is a number, not %q", args[2]), "as in: "+cmd.UseLine())
		}
		return nil
	}
	return reset.on(cmd)
}

// addNumberFlag gives a command the flag of a number that a gate showed.
func addNumberFlag(cmd *cobra.Command, name, usage string, into **int64) {
	cmd.Flags().Func(name, usage, func(text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		*into = &n
		return err
	})
}

func newGatesRelease() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release CONSUMER RESOURCE --reason TEXT",
		Short: "Give up the numbers that are missing before the lowest that is held",
		Long: `Gives up the numbers that are missing before the lowest that is held, which is due at once. What was given up and comes after all is
dropped. Who and why go to pawl.audit.`,
		Example: "  pawl sequence-gates release orders 'account 7' --reason 'the sender lost 42, see their ticket 1234' --yes",
	}
	var next *int64
	addNumberFlag(cmd, "next", "the lowest number that was held when you looked: if another one is, nothing changes", &next)
	return gateVerb("the missing numbers are dropped if they come after all",
		func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error) {
			return ops.SequenceGateRef{Consumer: args[0], Resource: args[1], NextHeld: next}.Release(ctx, conn, by)
		}).on(cmd)
}

// gateVerb is a verb whose first two arguments are a consumer and a resource.
func gateVerb(warning string, do func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error)) verb {
	name := func(args []string) string { return fmt.Sprintf("gate %s of consumer %s", args[1], args[0]) }
	return verb{arguments: 2, what: name, warning: warning, do: do,
		locked: "the gate is locked by an open transaction, most likely of a handler",
		done: func(args []string, r ops.Result) string {
			was := r.Was
			if was == "" {
				was = "-"
			}
			return fmt.Sprintf("gate %s %s: it stands at %s (was %s)", text.Visible(args[1]), r.Outcome, r.Now, was)
		},
		why: func(args []string, r ops.Result) (why, next string) {
			if r.Outcome == ops.Moved {
				return name(args) + " has moved since you looked", "see: pawl sequence-gates list --consumer " + text.ShellWord(args[0])
			}
			return "nothing is held at " + name(args), "see: pawl sequence-gates list --held"
		}}
}
