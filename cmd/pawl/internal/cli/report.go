package cli

import (
	"context"
	"errors"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
)

// A report is a command that reads something from the database and prints it, as text or as JSON.
type report[T any] struct {
	anySchema bool // the schema need not fit
	// check checks the command line before it connects; may be nil
	check func(cmd *cobra.Command, args []string) error
	read  func(ctx context.Context, conn *pgx.Conn, args []string) (T, error)
	next  func(args []string) string // the next step if what was named does not exist
	json  func(T) any                // default: the value itself
	print func(cmd *cobra.Command, value T) error
	// verdict is the error behind the output; may be nil
	verdict func(cmd *cobra.Command, value T) error
}

func (r report[T]) on(cmd *cobra.Command) *cobra.Command {
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if r.check != nil {
			if err := r.check(cmd, args); err != nil {
				return err
			}
		}
		connect := withSchema
		if r.anySchema {
			connect = withDatabase
		}
		return connect(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			value, err := r.read(ctx, conn, args)
			switch {
			case r.next != nil && errors.Is(err, pawl.ErrNotFound):
				return failed(cmd, absent(err), r.next(args))
			case err != nil:
				return err
			case !*asJSON:
				err = r.print(cmd, value)
			case r.json != nil:
				err = printJSON(cmd.OutOrStdout(), r.json(value))
			default:
				err = printJSON(cmd.OutOrStdout(), value)
			}
			if err != nil || r.verdict == nil {
				return err
			}
			return r.verdict(cmd, value)
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

// printed returns a function that prints a value as text.
func printed[T any](text func(T) string) func(*cobra.Command, T) error {
	return func(cmd *cobra.Command, value T) error {
		_, err := io.WriteString(cmd.OutOrStdout(), text(value))
		return err
	}
}
