package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

// A list is a command that prints a page of rows, as a table or as JSON.
type list[T any] struct {
	name    string // of the array in JSON, and of what there is none of
	none    string // what it says if there is nothing; default "no NAME"
	heading []string
	row     func(T) []string
	check   func(cmd *cobra.Command) error // of the flags; nil: none
	read    func(ctx context.Context, conn *pgx.Conn) (ops.Page[T], error)
	after   func(cmd *cobra.Command, rows []T) // what it says behind the table; nil: nothing
}

// on makes a list of a command. limit and cursor are those of its selection.
func (l list[T]) on(cmd *cobra.Command, limit *int, cursor *string) *cobra.Command {
	cmd.Args = noArgs
	cmd.Flags().IntVar(limit, "limit", 50, l.name+" at most, 1 to 1000")
	cmd.Flags().StringVar(cursor, "after", "", "only those behind this one: next_after of the page before")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if l.check == nil {
			l.check = func(*cobra.Command) error { return nil }
		}
		if err := cmp.Or(checkLimit(cmd, *limit), l.check(cmd)); err != nil {
			return err
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			page, err := l.read(ctx, conn)
			if err != nil {
				return err
			}
			if *asJSON {
				return l.printJSON(cmd.OutOrStdout(), page)
			}
			return l.print(cmd, page)
		})
	}
	return cmd
}

func (l list[T]) printJSON(w io.Writer, page ops.Page[T]) error {
	object := map[string]any{l.name: page.Rows}
	if page.Next != "" {
		object["next_after"] = page.Next
	}
	return printJSON(w, object)
}

func (l list[T]) print(cmd *cobra.Command, page ops.Page[T]) error {
	if len(page.Rows) == 0 {
		progress(cmd)(cmp.Or(l.none, "no "+l.name))
		return nil
	}
	if err := printTable(cmd.OutOrStdout(), l.heading, each(page.Rows, l.row)); err != nil {
		return err
	}
	if l.after != nil {
		l.after(cmd, page.Rows)
	}
	if page.Next != "" {
		progress(cmd)("there is more: add --after " + text.ShellWord(page.Next))
	}
	return nil
}

// A sheet is what is shown of one thing: a title and fields.
type sheet struct{ strings.Builder }

func (s *sheet) title(format string, args ...any) {
	fmt.Fprintln(s, text.Visible(fmt.Sprintf(format, args...)))
}

func (s *sheet) field(name, format string, args ...any) {
	fmt.Fprintf(s, "  %-10s %s\n", name, text.Visible(fmt.Sprintf(format, args...)))
}

// text is a field that is left out if it is empty.
func (s *sheet) text(name, value string) {
	if value != "" {
		s.field(name, "%s", value)
	}
}

// lines are what stands below a field. They are visible already.
func (s *sheet) lines(all []string) {
	for _, line := range all {
		fmt.Fprintf(s, "    %s\n", line)
	}
}

// audit shows what was done by hand.
func (s *sheet) audit(changes []ops.Change) {
	s.field("audit", "changes by hand: %d", len(changes))
	s.lines(each(changes, changeText))
}

func changeText(c ops.Change) string {
	return text.Visible(fmt.Sprintf("%s %s by %s%s: %s", c.At.UTC().Format(time.RFC3339), c.Verb, c.Actor, turn(c), c.Reason))
}

// turn is from which status to which a change led, of what has a status.
func turn(c ops.Change) string {
	before := statusOf(c.Before)
	if before == "" {
		return ""
	}
	if string(c.After) == "null" || c.After == nil {
		return ", " + before + " → deleted"
	}
	return ", " + before + " → " + statusOf(c.After)
}

func statusOf(record []byte) string {
	var row struct{ Status string }
	_ = json.Unmarshal(record, &row) // without one it is empty
	return row.Status
}

// deleted reports whether a change left nothing.
func deleted(c ops.Change) bool { return c.After == nil || string(c.After) == "null" }

// each is never nil: an empty array is printed as one.
func each[From, To any](all []From, convert func(From) To) []To {
	out := make([]To, len(all))
	for i, one := range all {
		out[i] = convert(one)
	}
	return out
}

// addStatusFlag gives a command the flag that selects by status.
func addStatusFlag(cmd *cobra.Command, into *[]ops.Status, have []ops.Status, usual ...string) {
	names := strings.Trim(fmt.Sprint(have), "[]")
	cmd.Flags().Var(&statuses{into: into, have: have, text: strings.Join(usual, ",")}, "status", "only in this status; several with commas: "+strings.ReplaceAll(names, " ", ", "))
	for _, s := range usual {
		*into = append(*into, ops.Status(s))
	}
}

// statuses is the value of such a flag.
type statuses struct {
	into *[]ops.Status
	have []ops.Status
	text string
	set  bool
}

func (s *statuses) String() string { return s.text }
func (s *statuses) Type() string   { return "strings" }

// Set adds to what was given before, and replaces what is usual.
func (s *statuses) Set(text string) error {
	if !s.set {
		*s.into, s.set = nil, true
	}
	for _, one := range strings.Split(text, ",") {
		*s.into = append(*s.into, ops.Status(one))
	}
	s.text = text
	return nil
}
