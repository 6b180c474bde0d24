package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
)

// A show is a command that prints one thing, named by its arguments, as text or as JSON.
type show[T any] struct {
	arguments int
	get       func(ctx context.Context, conn *pgx.Conn, args []string) (T, error)
	next      func(args []string) string // the next step if it does not exist
	text      func(T) string
}

func (s show[T]) on(cmd *cobra.Command) *cobra.Command {
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != s.arguments {
			return misused(cmd, fmt.Sprintf("it takes %s, not %d", text.Plural(s.arguments, "argument", "arguments"), len(args)), "as in: "+cmd.UseLine())
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			row, err := s.get(ctx, conn, args)
			switch {
			case errors.Is(err, pawl.ErrNotFound):
				return failed(cmd, absent(err), s.next(args))
			case err != nil:
				return err
			case *asJSON:
				return printJSON(cmd.OutOrStdout(), row)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), s.text(row))
			return err
		})
	}
	return cmd
}

// absent returns a Get's error without operation and code.
func absent(err error) error {
	var p *pawl.Error
	if errors.As(err, &p) && p.Err != nil {
		return p.Err
	}
	return err
}
