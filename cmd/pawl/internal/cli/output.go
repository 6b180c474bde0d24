package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// addJSONFlag gives a command --json.
func addJSONFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// printJSON prints one object on one line.
func printJSON(w io.Writer, value any) error {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // a URL's & stays readable
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(w, visibleJSON(text.String()))
	return err
}

// printTable prints rows under a heading, in columns.
func printTable(w io.Writer, heading []string, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{heading}, rows...) {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// progress prints each step on stderr, so that stdout holds the result alone.
func progress(cmd *cobra.Command) func(line string) {
	return func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
}

// checkLimit refuses a page without lines; the other bound is for ops to refuse.
func checkLimit(cmd *cobra.Command, limit int) error {
	if limit < 1 {
		return misused(cmd, "--limit must lie between 1 and 1000", "see: "+cmd.CommandPath()+" --help")
	}
	return nil
}

// sayMore tells how to go on behind a page that is full; next is nil if it is not.
func sayMore(cmd *cobra.Command, next *int64) {
	if next != nil {
		progress(cmd)(fmt.Sprintf("there may be more: add --after %d", *next))
	}
}
