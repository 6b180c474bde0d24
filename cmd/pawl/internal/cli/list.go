package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

// A list is a command that prints a page of rows, as a table or as JSON.
type list[T any] struct {
	name    string // of the array in JSON, and in the text "no NAME"
	none    string // text for an empty list; default "no NAME"
	heading []string
	row     func(T) []string
	check   func(cmd *cobra.Command) error     // of the flags; may be nil
	read    func() pager[T]                    // of the selection, once the flags are parsed
	after   func(cmd *cobra.Command, rows []T) // prints after the table; may be nil
	flag    string                             // that selects by a name; may be empty
	named   *string                            // its value
}

// A pager reads a page: the List of a selection.
type pager[T any] = func(context.Context, pawl.DB) (ops.Page[T], error)

// on turns cmd into a list. limit and cursor belong to its selection.
func (l list[T]) on(cmd *cobra.Command, limit *int, cursor *string) *cobra.Command {
	cmd.Args = noArgs
	cmd.Flags().IntVar(limit, "limit", 50, l.name+" at most, 1 to 1000")
	cmd.Flags().StringVar(cursor, "after", "", "only those after this one: next_after of the previous page")
	elsewhere := ""
	return report[ops.Page[T]]{
		check: func(cmd *cobra.Command, _ []string) error {
			if *limit < 1 || *limit > 1000 {
				return misused(cmd, fmt.Sprintf("--limit must lie between 1 and 1000, it is %d", *limit), "see: "+cmd.CommandPath()+" --help")
			}
			if l.check == nil {
				return nil
			}
			return l.check(cmd)
		},
		read: func(ctx context.Context, conn *pgx.Conn, _ []string) (ops.Page[T], error) {
			page, err := l.read()(ctx, conn)
			if err == nil && len(page.Rows) == 0 && *cursor == "" {
				elsewhere, err = l.elsewhere(ctx, conn)
			}
			return page, err
		},
		json: func(page ops.Page[T]) any {
			object := map[string]any{l.name: page.Rows}
			if page.Next != "" {
				object["next_after"] = page.Next
			}
			return object
		},
		print: l.print,
		verdict: func(cmd *cobra.Command, _ ops.Page[T]) error {
			if elsewhere != "" {
				progress(cmd)(elsewhere)
			}
			return nil
		},
	}.on(cmd)
}

// elsewhere says under which other names there are rows, or "".
func (l list[T]) elsewhere(ctx context.Context, conn *pgx.Conn) (string, error) {
	if l.flag == "" {
		return "", nil
	}
	name := *l.named
	defer func() { *l.named = name }()
	return foundWith(l.flag, name, func(other string) (string, error) {
		*l.named = other
		page, err := l.read()(ctx, conn)
		if page.Next != "" {
			return fmt.Sprintf("%d or more", len(page.Rows)), err
		}
		return fmt.Sprint(len(page.Rows)), err
	})
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

// A sheet shows one row: a title and fields.
type sheet struct{ strings.Builder }

func (s *sheet) title(format string, args ...any) {
	fmt.Fprintln(s, text.Visible(fmt.Sprintf(format, args...)))
}

func (s *sheet) field(name, format string, args ...any) {
	fmt.Fprintf(s, "  %-10s %s\n", name, text.Visible(fmt.Sprintf(format, args...)))
}

// text adds a field, unless its value is empty.
func (s *sheet) text(name, value string) {
	if value != "" {
		s.field(name, "%s", value)
	}
}

// lines adds lines below a field. Callers have escaped control characters in them.
func (s *sheet) lines(all []string) {
	for _, line := range all {
		fmt.Fprintf(s, "    %s\n", line)
	}
}

// audit adds the changes by operators.
func (s *sheet) audit(changes []ops.Change) {
	s.field("audit", "changes by hand: %d", len(changes))
	s.lines(each(changes, changeText))
}

func changeText(c ops.Change) string {
	return text.Visible(fmt.Sprintf("%s %s by %s%s: %s", c.At.UTC().Format(time.RFC3339), c.Verb, c.Actor, turn(c), c.Reason))
}

// turn formats the change of status, if the row has one.
func turn(c ops.Change) string {
	before := statusOf(c.Before)
	if before == "" {
		return ""
	}
	if deleted(c) {
		return ", " + before + " → deleted"
	}
	return ", " + before + " → " + statusOf(c.After)
}

func statusOf(record []byte) string {
	var row struct{ Status string }
	_ = json.Unmarshal(record, &row) // empty without one
	return row.Status
}

func deleted(c ops.Change) bool { return c.After == nil || string(c.After) == "null" }

// each converts all elements. It never returns nil, so that JSON has an empty array.
func each[From, To any](all []From, convert func(From) To) []To {
	out := make([]To, len(all))
	for i, one := range all {
		out[i] = convert(one)
	}
	return out
}

// addStatusFlag adds the flag that selects by status, and returns its check. usual are its
// defaults.
func addStatusFlag(cmd *cobra.Command, into *[]ops.Status, have []ops.Status, usual ...string) func(*cobra.Command) error {
	names := strings.Trim(fmt.Sprint(have), "[]")
	cmd.Flags().Var(&statuses{into: into, text: strings.Join(usual, ",")}, "status", "only in this status; several with commas: "+strings.ReplaceAll(names, " ", ", "))
	for _, s := range usual {
		*into = append(*into, ops.Status(s))
	}
	return func(cmd *cobra.Command) error {
		for _, s := range *into {
			if s != "" && !slices.Contains(have, s) {
				return misused(cmd, fmt.Sprintf("unknown status %q", s), "known: "+names)
			}
		}
		return nil
	}
}

// statuses is the value of that flag.
type statuses struct {
	into *[]ops.Status
	text string
	set  bool
}

func (s *statuses) String() string { return s.text }
func (s *statuses) Type() string   { return "strings" }

// Set adds to the values given before, and replaces the defaults.
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
