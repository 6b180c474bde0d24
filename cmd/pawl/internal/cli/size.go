package cli

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/cmd/pawl/internal/sizing"
)

func newSize() *cobra.Command {
	l := sizing.Load{}
	var days float64
	cmd := &cobra.Command{
		Use:   "size",
		Short: "Compute what a stream of messages needs: rows, disk, WAL, memory, connections, databases",
		Args:  noArgs,
		Long: `Computes what a stream of messages needs of a database, from the layout of PostgreSQL's pages and measured figures. It connects to nothing.

It counts Pawl's row of each message, and the two indexes on it. Your own rows, stored failures and jobs come on top: measure them. docs/operating/size.md
says how the figures are made.`,
		Example: "  pawl size --per-second 1000 --days 30\n  pawl size --per-second 10000 --random-keys --capacity 5000 --processes 12 --json",
	}
	flags := cmd.Flags()
	flags.Float64Var(&l.PerSecond, "per-second", 1000, "messages a second, all day")
	flags.Float64Var(&days, "days", 30, "days for which a message is remembered")
	flags.IntVar(&l.Key, "key", 36, "octets of a key")
	flags.IntVar(&l.Consumer, "consumer", 6, "octets of the consumer's name")
	flags.BoolVar(&l.Random, "random-keys", false, "keys have no order, like UUIDs of version 4")
	flags.DurationVar(&l.Handler, "handler", 5*time.Millisecond, "how long one handler runs, with its statements")
	flags.Float64Var(&l.Capacity, "capacity", 3000, "messages a second that one database can process: measure yours")
	flags.IntVar(&l.Processes, "processes", 4, "processes that consume")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !(days > 0 && days <= 3650) {
			return misused(cmd, fmt.Sprintf("--days must lie between 0 and 3650, it is %v", days), "see: pawl size --help")
		}
		l.Remember = time.Duration(days * 24 * float64(time.Hour))
		if err := l.Validate(); err != nil {
			return misused(cmd, err.Error(), "see: pawl size --help")
		}
		n := l.Needs()
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), n)
		}
		return printTable(cmd.OutOrStdout(), []string{"OF ALL MESSAGES", ""}, [][]string{
			{"rows", many(n.Rows)},
			{"table", octets(n.HeapOctets)},
			{"index of keys", octets(n.KeyOctets)},
			{"index of ages", octets(n.AgeOctets)},
			{"disk, with room for what vacuum has not freed", octets(n.DiskOctets)},
			{"WAL a second", octets(n.WALPerSecond)},
			{"WAL a day", octets(n.WALPerDay)},
			{"of that, page images, about", octets(n.ImagesPerDay)},
			{"hot memory", octets(n.HotOctets)},
			{"messages being handled", many(math.Ceil(n.InHand))},
			{"connections", strconv.Itoa(n.Connections)},
			{"databases of that capacity", strconv.Itoa(n.Cells)},
		})
	}
	return cmd
}

// octets formats a size, in powers of 1024.
func octets(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for ; n >= 1024 && i < len(units)-1; i++ {
		n /= 1024
	}
	return strconv.FormatFloat(n, 'f', decimals(n), 64) + " " + units[i]
}

func many(n float64) string {
	for _, u := range []struct {
		of   float64
		name string
	}{{1e12, " trillion"}, {1e9, " billion"}, {1e6, " million"}} {
		if n >= u.of {
			return strconv.FormatFloat(n/u.of, 'f', decimals(n/u.of), 64) + u.name
		}
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}

// decimals keeps three digits.
func decimals(n float64) int {
	switch {
	case n >= 100 || n == 0:
		return 0
	case n >= 10:
		return 1
	}
	return 2
}
