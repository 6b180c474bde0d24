package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func newCommands() *cobra.Command {
	cmd := group("commands", "Look at commands, and settle those of unknown outcome")
	cmd.Long = `A command is a request that takes effect once for its scope and key, with the response that every repeated call gets. If its attempt
stopped responding, and the command was not declared repeatable, its outcome is unknown. Callers get that answer until you settle it.`
	cmd.Example = `  pawl commands list --stale
  pawl commands show orders/acme order-17
  pawl commands settle orders/acme order-17 not_executed --fence 17 --reason 'the provider has no such charge' --yes`
	cmd.AddCommand(newCommandsList(), newCommandsShow())
	addVerbs(cmd, operator.Commands)
	return cmd
}

func newCommandsList() *cobra.Command {
	var s ops.Commands
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List commands, by scope and key",
		Example: "  pawl commands list --stale\n  pawl commands list --scope orders/acme --status unknown --json | jq -r '.commands[].key'",
	}
	flags := cmd.Flags()
	flags.StringVar(&s.Scope, "scope", "", "only of this scope")
	flags.BoolVar(&s.Stale, "stale", false, "only those that need help to finish: unknown, or processing with an expired lease")
	return list[ops.Command]{name: "commands", row: commandCells,
		heading: []string{"SCOPE", "KEY", "STATUS", "ATTEMPTS", "AGE", "SINCE", "CLAIMED BY", "FAILURE"},
		check:   addStatusFlag(cmd, &s.Statuses, ops.CommandStatuses()),
		read:    func() pager[ops.Command] { return s.List },
	}.on(cmd, &s.Limit, &s.After)
}

func commandCells(c ops.Command) []string {
	status := string(c.Status)
	if c.Stale && c.Status == ops.StatusProcessing {
		status += ", lease expired"
	}
	return []string{cell(c.Scope, nameWidth), cell(c.Key, nameWidth), status, strconv.Itoa(c.Attempts), span(c.ReadAt.Sub(c.CreatedAt)),
		span(c.ReadAt.Sub(c.UpdatedAt)), cell(c.ClaimedBy, nameWidth), cell(failure(c.FailureCode, c.FailureMessage), errorWidth)}
}

// failure joins a code and its message, or returns the one that is not empty.
func failure(code, message string) string {
	return strings.TrimPrefix(code+": "+message, ": ")
}

func newCommandsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show SCOPE KEY",
		Short:   "Show a command, the size of its response, and changes by operators",
		Example: "  pawl commands show orders/acme order-17",
		Args:    takes(2),
	}
	return report[ops.Command]{
		read: func(ctx context.Context, conn *pgx.Conn, args []string) (ops.Command, error) {
			return ops.CommandRef{Scope: args[0], Key: args[1]}.Get(ctx, conn)
		},
		next: func(args []string) string {
			return "it was never received, or its retention has passed; see: pawl explain " + text.ShellWord(args[1])
		},
		print: printed(commandText),
	}.on(cmd)
}

func commandText(c ops.Command) string {
	var out sheet
	out.title("command %s in scope %s", c.Key, c.Scope)
	out.field("status", "%s", c.Status)
	out.field("attempts", "%d, fence %d", c.Attempts, c.Fence)
	out.text("claimed by", c.ClaimedBy)
	if !c.LeaseExpiresAt.IsZero() {
		out.field("lease", "ends %s", when(c.LeaseExpiresAt, c.ReadAt))
	}
	out.field("created", "%s", when(c.CreatedAt, c.ReadAt))
	out.field("updated", "%s", when(c.UpdatedAt, c.ReadAt))
	out.field("remembered", "until %s", when(c.ExpiresAt, c.ReadAt))
	if c.ResponseStatus != 0 {
		out.field("answer", "HTTP %d, %d octets", c.ResponseStatus, c.ResponseOctets)
	}
	if c.ResultOctets != 0 {
		out.field("result", "%d octets", c.ResultOctets)
	}
	if c.RefID != "" {
		out.field("reference", "%s %s", c.RefType, c.RefID)
	}
	out.text("failure", failure(c.FailureCode, c.FailureMessage))
	out.field("payload", "fingerprint %s", c.Fingerprint)
	out.audit(c.Changes)
	return out.String()
}
