package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// addJSONFlag adds --json to a command.
func addJSONFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// printJSON prints one object on one line.
func printJSON(w io.Writer, value any) error {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // keeps & readable in URLs
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(w, visibleJSON(text.String()))
	return err
}

// printTable prints a heading and rows in columns.
func printTable(w io.Writer, heading []string, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{heading}, rows...) {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// progress prints steps on stderr, so that stdout has only the result.
func progress(cmd *cobra.Command) func(line string) {
	return func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
}

// checkLimit refuses a --limit outside 1 to 1000.
func checkLimit(cmd *cobra.Command, limit int) error {
	if limit < 1 || limit > 1000 {
		return misused(cmd, fmt.Sprintf("--limit must lie between 1 and 1000, it is %d", limit), "see: "+cmd.CommandPath()+" --help")
	}
	return nil
}

// checkStatuses refuses statuses that known does not contain.
func checkStatuses[S ~string](cmd *cobra.Command, known []S, given ...S) error {
	for _, s := range given {
		if s != "" && !slices.Contains(known, s) {
			return misused(cmd, fmt.Sprintf("unknown status %q", s), "known: "+strings.Trim(fmt.Sprint(known), "[]"))
		}
	}
	return nil
}
