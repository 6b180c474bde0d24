package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

func newGates() *cobra.Command {
	cmd := group("sequence-gates", "Show sequence gates, set their position, and give up missing numbers")
	cmd.Long = `A gate lets the deliveries of a resource take effect in the order of the numbers that their senders gave them. A strict gate holds
early deliveries until those with the numbers before have arrived. If these never arrive, or the sender has restarted its numbers, you
must decide:

  they can be sent again   have them sent: the gate goes on by itself
  they are lost            pawl sequence-gates release: the lowest number that is held is next
  the numbers restart      pawl sequence-gates reset: you say which number took effect last`
	cmd.Example = `  pawl sequence-gates list --held
  pawl sequence-gates release orders 'account 7' --reason 'the sender lost 42, see their ticket 1234' --yes
  pawl sequence-gates reset orders 'account 7' 0 --reason 'they count from 1 again' --yes`
	cmd.AddCommand(newGatesList())
	addVerbs(cmd, operator.SequenceGates)
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
	flags.BoolVar(&s.Held, "held", false, "only those that hold deliveries")
	return list[ops.SequenceGate]{name: "gates", row: gateCells, flag: "consumer", named: &s.Consumer,
		heading: []string{"CONSUMER", "RESOURCE", "LAST", "HELD", "NEXT", "SINCE"},
		read:    func() pager[ops.SequenceGate] { return s.List },
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
