package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/ops"
)

func newGates() *cobra.Command {
	cmd := group("gates", "Look at sequence gates, say where one stands, and give up what is missing")
	cmd.Long = `A gate lets the deliveries of a resource take effect in the order of the numbers that their senders gave them. A strict gate holds
what comes early, until the numbers before it have come. If they never come, or the sender has begun anew, somebody must decide:

  they can be sent again   have them sent: the gate goes on by itself
  they are lost            pawl gates release: the lowest number that is held is next
  the numbers begin anew   pawl gates reset: you say which number took effect last`
	cmd.Example = `  pawl gates list --held
  pawl gates release orders 'account 7' --reason 'the sender lost 42, see their ticket 1234' --yes
  pawl gates reset orders 'account 7' 0 --reason 'they count from 1 again' --yes`
	cmd.AddCommand(newGatesList(), newGatesReset(), newGatesRelease())
	return cmd
}

func newGatesList() *cobra.Command {
	var f ops.GateFilter
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List gates, by consumer and resource",
		Args:    noArgs,
		Example: "  pawl gates list --held\n  pawl gates list --consumer orders --after 'account 7' --limit 200\n  pawl gates list --held --json | jq -r '.gates[].resource'",
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Consumer, "consumer", "", "only of this consumer")
	flags.BoolVar(&f.Held, "held", false, "only those at which something is held")
	flags.IntVar(&f.Limit, "limit", 50, "gates at most, 1 to 1000")
	flags.StringVar(&f.After, "after", "", "only resources behind this one: the last of the page before; with --consumer")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkLimit(cmd, f.Limit); err != nil {
			return err
		}
		if f.After != "" && f.Consumer == "" {
			return misused(cmd, "--after needs --consumer: resources are in order within one", "add --consumer")
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			gates, err := ops.Gates(ctx, conn, f)
			if err != nil {
				return err
			}
			full := len(gates) == f.Limit
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), gatesJSON{each(gates, gateToJSON), full})
			}
			return printGates(cmd, gates, full)
		})
	}
	return cmd
}

func printGates(cmd *cobra.Command, gates []ops.Gate, full bool) error {
	if len(gates) == 0 {
		progress(cmd)("no gates")
		return nil
	}
	rows := make([][]string, len(gates))
	for i, g := range gates {
		next, since := "-", "-"
		if g.Held > 0 {
			next, since = strconv.FormatInt(g.NextHeld, 10), span(g.ReadAt.Sub(g.Since))
		}
		rows[i] = []string{cell(g.Consumer, nameWidth), cell(g.Resource, nameWidth), number(g.Last), strconv.Itoa(g.Held), next, since}
	}
	if err := printTable(cmd.OutOrStdout(), []string{"CONSUMER", "RESOURCE", "LAST", "HELD", "NEXT", "SINCE"}, rows); err != nil {
		return err
	}
	if full {
		last := gates[len(gates)-1]
		progress(cmd)(fmt.Sprintf("there may be more: add --consumer %s --after %s", visible(last.Consumer), visible(last.Resource)))
	}
	return nil
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
		Example: "  pawl gates reset orders 'account 7' 41 --reason 'their numbers begin at 42' --yes\n  pawl gates reset --reason 'they begin at 0' --yes -- orders 'account 7' -1",
	}
	var last int64
	cmd.Args = func(cmd *cobra.Command, args []string) (err error) {
		if len(args) != 3 {
			return nil // said below
		}
		if last, err = strconv.ParseInt(args[2], 10, 64); err != nil {
			return misused(cmd, fmt.Sprintf("LAST is a number, not %q", args[2]), "as in: "+cmd.UseLine())
		}
		return nil
	}
	return verb{arguments: 3, what: gateOf, locked: gateLocked, warning: "whatever has a number up to LAST is dropped",
		flags: numberFlag("from", "where the gate stood when you looked: if it has moved since, nothing changes"),
		do: func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (answer, error) {
			r, err := ops.ResetGate(ctx, conn, args[0], args[1], last, by)
			return gateAnswer(args, r), err
		}}.on(cmd)
}

// numberFlag is the flag of a number that a gate showed.
func numberFlag(name, usage string) func(cmd *cobra.Command, by *ops.By) {
	return func(cmd *cobra.Command, by *ops.By) {
		cmd.Flags().Func(name, usage, func(text string) error {
			n, err := strconv.ParseInt(text, 10, 64)
			by.Number = &n
			return err
		})
	}
}

func newGatesRelease() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release CONSUMER RESOURCE --reason TEXT",
		Short: "Give up the numbers that are missing before the lowest that is held",
		Long: `Gives up the numbers that are missing before the lowest that is held, which is due at once. What was given up and comes after all is
dropped. Who and why go to pawl.audit.`,
		Example: "  pawl gates release orders 'account 7' --reason 'the sender lost 42, see their ticket 1234' --yes",
	}
	return verb{arguments: 2, what: gateOf, locked: gateLocked, warning: "the missing numbers are dropped if they come after all",
		flags: numberFlag("next", "the lowest number that was held when you looked: if another one is, nothing changes"),
		do: func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (answer, error) {
			r, err := ops.ReleaseGate(ctx, conn, args[0], args[1], by)
			return gateAnswer(args, r), err
		}}.on(cmd)
}

const gateLocked = "the gate is locked by an open transaction, most likely of a handler"

func gateOf(args []string) string { return fmt.Sprintf("gate %s of consumer %s", args[1], args[0]) }

func gateAnswer(args []string, r ops.GateResult) answer {
	a := answer{json: gateResultJSON{Outcome: string(r.Outcome), Before: r.Before}}
	if !r.Changed() {
		a.why, a.next = "nothing is held at "+gateOf(args), "see: pawl gates list --held"
		if r.Outcome == ops.Moved {
			a.why, a.next = gateOf(args)+" has moved since you looked", "see: pawl gates list --consumer "+quoted(args[0])
		}
		return a
	}
	a.json = gateResultJSON{string(r.Outcome), r.Before, &r.Last}
	a.done = fmt.Sprintf("gate %s %s: it stands at %d (was %s)", visible(args[1]), r.Outcome, r.Last, number(r.Before))
	return a
}

type gatesJSON struct {
	Gates []gateJSON `json:"gates"`
	More  bool       `json:"more"` // there may be more: ask with --consumer and --after
}

type gateJSON struct {
	Consumer string     `json:"consumer"`
	Resource string     `json:"resource"`
	Last     *int64     `json:"last"` // null: nothing has taken effect
	Held     int        `json:"held"`
	NextHeld *int64     `json:"next_held"` // null: nothing is held
	Since    *time.Time `json:"since"`
}

func gateToJSON(g ops.Gate) gateJSON {
	j := gateJSON{Consumer: g.Consumer, Resource: g.Resource, Last: g.Last, Held: g.Held}
	if g.Held > 0 {
		j.NextHeld, j.Since = &g.NextHeld, given(g.Since.UTC())
	}
	return j
}

type gateResultJSON struct {
	Outcome string `json:"outcome"` // reset, released; idle
	Before  *int64 `json:"before"`  // where it stood; null: nowhere
	Last    *int64 `json:"last"`    // where it stands; null: nothing changed
}
