package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/ops"
)

// A change is what all commands that change something share: who and why, the question, and the dry run.
type change struct {
	by          ops.By
	yes, dryRun bool
	json        *bool
}

// addChange gives a command the flags of a change. Without asks it never asks.
func addChange(cmd *cobra.Command, asks bool) *change {
	c := &change{}
	flags := cmd.Flags()
	flags.StringVar(&c.by.Reason, "reason", "", "why, for the reader of the audit; required")
	flags.StringVar(&c.by.Actor, "actor", "", "who (default: $USER)")
	flags.BoolVar(&c.dryRun, "dry-run", false, "say what would be done, and change nothing; needs no reason")
	if asks {
		flags.BoolVar(&c.yes, "yes", false, "do not ask; required without a terminal")
	}
	c.json = addJSONFlag(cmd)
	return c
}

// run checks who and why, asks if there is a warning, and does it. Nothing is connected to before the command line is known to be right.
func (c *change) run(cmd *cobra.Command, what, warning string, do func(ctx context.Context, conn *pgx.Conn, by ops.By) error) error {
	by := ops.DryRun
	if !c.dryRun {
		if err := c.checkBy(cmd); err != nil {
			return err
		}
		by = c.by
	}
	if err := c.mayAsk(cmd, what, warning); err != nil {
		return err
	}
	return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
		if err := c.ask(ctx, cmd, conn, what, warning); err != nil {
			return err
		}
		return do(ctx, conn, by)
	})
}

// checkBy requires a reason, and an actor.
func (c *change) checkBy(cmd *cobra.Command) error {
	if strings.TrimSpace(c.by.Reason) == "" {
		return misused(cmd, "why is missing", "pass --reason, as in: --reason 'the stock service is back'")
	}
	if c.by.Actor == "" {
		c.by.Actor = whoami()
	}
	if c.by.Actor == "" {
		return misused(cmd, "who is missing: $USER is not set", "pass --actor")
	}
	return nil
}

// asks reports whether a warning must be agreed to.
func (c *change) asks(warning string) bool { return warning != "" && !c.yes && !c.dryRun }

// mayAsk refuses a change that must be agreed to where there is no terminal.
func (c *change) mayAsk(cmd *cobra.Command, what, warning string) error {
	if !c.asks(warning) || isTerminal(cmd.InOrStdin()) && isTerminal(cmd.ErrOrStderr()) {
		return nil
	}
	return misused(cmd, fmt.Sprintf("this would %s: %s", what, warning), "add --yes, or --dry-run")
}

// ask asks, unless there is no warning, or the answer is given already.
func (c *change) ask(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, what, warning string) error {
	if err := c.mayAsk(cmd, what, warning); err != nil || !c.asks(warning) {
		return err
	}
	cfg := conn.Config()
	question := fmt.Sprintf("%s of database %s on %s? (%s) [y/N] ", what, pgx.Identifier{cfg.Database}.Sanitize(), place(cfg), warning)
	if agreed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question) {
		return nil
	}
	return failed(cmd, errors.New("not agreed to; nothing changed"), "answer y, or add --yes")
}

// note begins a line of a dry run.
func (c *change) note() string {
	if c.dryRun {
		return "dry run, nothing changed: "
	}
	return ""
}

func whoami() string {
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// isLocked reports whether an open transaction has the row.
func isLocked(err error) bool { return verdict.IsBusy(pawl.CodeOf(err)) }

// A verb changes one thing that its arguments name.
type verb struct {
	arguments int
	what      func(args []string) string                    // that it is about, for the question: "lane a of queue q"
	warning   string                                        // what cannot be taken back; empty: nothing, and it does not ask
	check     func(cmd *cobra.Command, args []string) error // of the arguments; nil: none
	locked    string                                        // what it says if an open transaction has the thing
	do        func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error)
	done      func(args []string, r ops.Result) string             // the line about a change; also if it was so already
	why       func(args []string, r ops.Result) (why, next string) // nothing changed; without next: the hint
}

// on makes a verb of a command: flags, question, and what is printed.
func (v verb) on(cmd *cobra.Command) *cobra.Command {
	c := addChange(cmd, v.warning != "")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != v.arguments {
			return misused(cmd, fmt.Sprintf("it takes %s, not %d", text.Plural(v.arguments, "argument", "arguments"), len(args)), "as in: "+cmd.UseLine())
		}
		if v.check != nil {
			if err := v.check(cmd, args); err != nil {
				return err
			}
		}
		return c.run(cmd, cmd.Name()+" "+v.what(args), v.warning, func(ctx context.Context, conn *pgx.Conn, by ops.By) error {
			r, err := v.do(ctx, conn, args, by)
			switch {
			case isLocked(err):
				return failed(cmd, errors.New(v.locked), "ask again when that has ended")
			case err != nil:
				return err
			}
			return v.print(cmd, c, args, r)
		})
	}
	return cmd
}

func (v verb) print(cmd *cobra.Command, c *change, args []string, r ops.Result) (err error) {
	done := r.Changed() || r.Outcome == ops.Unchanged
	switch {
	case *c.json:
		err = printJSON(cmd.OutOrStdout(), r)
	case done:
		_, err = fmt.Fprintln(cmd.OutOrStdout(), c.note()+v.done(args, r))
	}
	if err != nil || done {
		return err
	}
	why, next := v.why(args, r)
	if next == "" {
		next = r.Hint
	}
	return failed(cmd, errors.New(why), next)
}

// addFenceFlag gives a command the flag that says what was looked at.
func addFenceFlag(cmd *cobra.Command, fence *int64) {
	cmd.Flags().Int64Var(fence, "fence", 0, "the fence that was shown when you looked: if it has moved since, nothing changes")
}

// checkFence requires the fence of a verdict. Looking it up here would defeat it: it must be that of what the person saw.
func checkFence(cmd *cobra.Command, fence int64, look string) error {
	if fence <= 0 {
		return misused(cmd, "which attempt your verdict is about is missing", "pass --fence, as shown by: "+look)
	}
	return nil
}
