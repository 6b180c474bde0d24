package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/ops"
)

// A change is the part that all changing commands share: actor and reason, the question, and the
// dry run.
type change struct {
	by          ops.By
	yes, dryRun bool
	json        *bool
}

// addChange adds the flags of a change to a command. If asks is false, the command never asks for
// consent.
func addChange(cmd *cobra.Command, asks bool) *change {
	c := &change{}
	flags := cmd.Flags()
	flags.StringVar(&c.by.Reason, "reason", "", "reason, for the audit record; required")
	flags.StringVar(&c.by.Actor, "actor", "", "your name, for the audit record (default: $USER)")
	flags.BoolVar(&c.dryRun, "dry-run", false, "print what would change, and change nothing; needs no --reason")
	if asks {
		flags.BoolVar(&c.yes, "yes", false, "do not ask; required without a terminal")
	}
	c.json = addJSONFlag(cmd)
	return c
}

// run checks actor and reason, asks if there is a warning, and calls do. It connects only after the
// command line is found valid.
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

func (c *change) checkBy(cmd *cobra.Command) error {
	if strings.TrimSpace(c.by.Reason) == "" {
		return misused(cmd, "the reason is missing", "pass --reason, as in: --reason 'the stock service is back'")
	}
	c.by.Actor = cmp.Or(c.by.Actor, whoami())
	if c.by.Actor == "" {
		return misused(cmd, "the actor is missing: $USER is not set", "pass --actor")
	}
	return nil
}

// asks reports whether a warning needs consent.
func (c *change) asks(warning string) bool { return warning != "" && !c.yes && !c.dryRun }

// mayAsk refuses a change that needs consent if there is no terminal.
func (c *change) mayAsk(cmd *cobra.Command, what, warning string) error {
	if !c.asks(warning) || isTerminal(cmd.InOrStdin()) && isTerminal(cmd.ErrOrStderr()) {
		return nil
	}
	return misused(cmd, fmt.Sprintf("this would %s: %s", what, warning), "add --yes, or --dry-run")
}

// ask asks for consent, unless there is no warning or --yes was passed.
func (c *change) ask(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, what, warning string) error {
	if err := c.mayAsk(cmd, what, warning); err != nil || !c.asks(warning) {
		return err
	}
	cfg := conn.Config()
	question := fmt.Sprintf("%s of database %s on %s? (%s) [y/N] ", what, pgx.Identifier{cfg.Database}.Sanitize(), addressOf(cfg), warning)
	if agreed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question) {
		return nil
	}
	return failed(cmd, errors.New("not confirmed; nothing changed"), "answer y, or add --yes")
}

// note is the prefix of a dry run's lines.
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

func isLocked(err error) bool { return verdict.IsBusy(pawl.CodeOf(err)) }
