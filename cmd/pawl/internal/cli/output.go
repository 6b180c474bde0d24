package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

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

// printOne prints a value as JSON, or a line in its place.
func printOne(cmd *cobra.Command, asJSON bool, value any, line string) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), value)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), line)
	return err
}

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
