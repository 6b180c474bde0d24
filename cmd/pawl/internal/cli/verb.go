package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// A verb changes one thing that its arguments name.
type verb struct {
	arguments int
	what      func(args []string) string                    // that it is about, for the question: "lane a of queue q"
	warning   string                                        // what cannot be taken back; empty: nothing, and nobody is asked
	check     func(cmd *cobra.Command, args []string) error // of the arguments; nil: none
	fence     func(args []string) string                    // where the fence is shown that the verb requires; nil: it takes none
	flags     func(cmd *cobra.Command, by *ops.By)          // of its own, that say what was looked at; nil: none
	locked    string                                        // what it says if an open transaction has the thing
	do        func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (answer, error)
}

// An answer is what became of it.
type answer struct {
	json any
	done string // the line that says so; empty if nothing changed
	why  string // nothing changed
	next string // then
}

// on makes a verb of a command: flags, question, and what is printed.
func (v verb) on(cmd *cobra.Command) *cobra.Command {
	var by ops.By
	var yes *bool
	addByFlags(cmd, &by)
	if v.warning != "" {
		yes = cmd.Flags().Bool("yes", false, "do not ask; required where nobody can be asked")
	}
	if v.fence != nil {
		addFenceFlag(cmd, &by)
	}
	if v.flags != nil {
		v.flags(cmd, &by)
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != v.arguments {
			return misused(cmd, fmt.Sprintf("it takes %s, not %d", plural(v.arguments, "argument", "arguments"), len(args)), "as in: "+cmd.UseLine())
		}
		if v.check != nil {
			if err := v.check(cmd, args); err != nil {
				return err
			}
		}
		if err := checkBy(cmd, &by); err != nil {
			return err
		}
		if v.fence != nil {
			if err := checkFence(cmd, by, v.fence(args)); err != nil {
				return err
			}
		}
		what := cmd.Name() + " " + v.what(args)
		ask := yes != nil && !*yes
		if ask && !mayAsk(cmd) {
			return misused(cmd, fmt.Sprintf("this would %s: %s", what, v.warning), "add --yes")
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			if ask && !agreed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question(conn, what, v.warning)) {
				return failed(cmd, errNotAgreed, "answer y, or add --yes")
			}
			a, err := v.do(ctx, conn, args, by)
			var pg *pgconn.PgError
			if pawl.CodeOf(err) == "55P03" && errors.As(err, &pg) {
				return failed(cmd, errors.New(v.locked), "ask again when that has ended")
			}
			if err != nil {
				return err
			}
			return a.print(cmd, *asJSON)
		})
	}
	return cmd
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (a answer) print(cmd *cobra.Command, asJSON bool) (err error) {
	switch {
	case asJSON:
		err = printJSON(cmd.OutOrStdout(), a.json)
	case a.done != "":
		_, err = fmt.Fprintln(cmd.OutOrStdout(), a.done)
	}
	if err != nil || a.done != "" {
		return err
	}
	return failed(cmd, errors.New(a.why), a.next)
}
