package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func newCommands() *cobra.Command {
	cmd := group("commands", "Look at commands, and settle those of unknown outcome")
	cmd.Long = `A command is what a caller asked to happen once under a scope and a key, with the answer that every repeated call gets. If its attempt
fell silent, and it was not declared repeatable, it is unknown: its callers are told so until you settle it.`
	cmd.Example = `  pawl commands list --stale
  pawl commands show orders/acme order-17
  pawl commands settle orders/acme order-17 not_executed --fence 17 --reason 'the provider has no such charge' --yes`
	cmd.AddCommand(newCommandsList(), newCommandsShow(), newCommandsSettle())
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
	addStatusFlag(cmd, &s.Statuses, ops.CommandStatuses())
	flags.BoolVar(&s.Stale, "stale", false, "only those that do not end without help: unknown, or processing with the lease over")
	return list[ops.Command]{name: "commands", row: commandCells,
		heading: []string{"SCOPE", "KEY", "STATUS", "ATTEMPTS", "AGE", "SINCE", "CLAIMED BY", "FAILURE"},
		check:   func(cmd *cobra.Command) error { return checkStatuses(cmd, ops.CommandStatuses(), s.Statuses...) },
		read:    func(ctx context.Context, conn *pgx.Conn) (ops.Page[ops.Command], error) { return s.List(ctx, conn) },
	}.on(cmd, &s.Limit, &s.After)
}

func commandCells(c ops.Command) []string {
	status := string(c.Status)
	if c.Stale && c.Status == ops.StatusProcessing {
		status += ", lease over"
	}
	return []string{cell(c.Scope, nameWidth), cell(c.Key, nameWidth), status, strconv.Itoa(c.Attempts), span(c.ReadAt.Sub(c.CreatedAt)),
		span(c.ReadAt.Sub(c.UpdatedAt)), cell(c.ClaimedBy, nameWidth), cell(failure(c.FailureCode, c.FailureMessage), errorWidth)}
}

// failure is a code and what it says, or what there is of them.
func failure(code, message string) string {
	return strings.TrimPrefix(code+": "+message, ": ")
}

func newCommandsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show SCOPE KEY",
		Short:   "Show a command, what it answers in size only, and what operators did",
		Example: "  pawl commands show orders/acme order-17",
	}
	return show[ops.Command]{arguments: 2,
		get: func(ctx context.Context, conn *pgx.Conn, args []string) (ops.Command, error) {
			return ops.CommandRef{Scope: args[0], Key: args[1]}.Get(ctx, conn)
		},
		next: func(args []string) string {
			return "it never came, or its memory is over; see: pawl explain " + text.ShellWord(args[1])
		},
		text: commandText,
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

func newCommandsSettle() *cobra.Command {
	var v ops.CommandVerdict
	cmd := &cobra.Command{
		Use:   "settle SCOPE KEY executed|not_executed --fence N --reason TEXT",
		Short: "Say whether an unknown command took effect",
		Long: `Ends an unknown command after you have found out, from the provider or the business rows, whether it took effect. executed: it
succeeded, and every repeated call gets the result. not_executed: the next call with the key may run it. The attempt that
fell silent is refused from now on. --fence is what commands show printed when you looked: if another attempt has begun since, your verdict is
not about that one, and nothing changes. Who and why go to pawl.audit.`,
		Example: "  pawl commands settle orders/acme order-17 executed --fence 17 --result '{\"id\": 17}' --reason 'order 17 is there' --yes",
	}
	var fence int64
	addFenceFlag(cmd, &fence)
	cmd.Flags().StringVar(&v.Result, "result", "", "the answer from now on, if it was executed; usually JSON")
	cmd.Flags().StringVar(&v.RefType, "ref-type", "", "what the result is, for people: order")
	cmd.Flags().StringVar(&v.RefID, "ref-id", "", "and which")
	name := func(args []string) string { return fmt.Sprintf("command %s of scope %s", args[1], args[0]) }
	look := func(args []string) string {
		return "pawl commands show " + text.ShellWord(args[0]) + " " + text.ShellWord(args[1])
	}
	return verb{arguments: 3, what: func(args []string) string { return name(args) + " as " + args[2] },
		warning: "a wrong verdict doubles or loses an effect",
		locked:  "the command is locked by an open transaction, most likely of its attempt",
		check: func(cmd *cobra.Command, args []string) error {
			if args[2] != "executed" && args[2] != "not_executed" {
				return misused(cmd, fmt.Sprintf("the verdict is executed or not_executed, not %q", args[2]), "as in: "+cmd.UseLine())
			}
			if args[2] == "not_executed" && v != (ops.CommandVerdict{}) {
				return misused(cmd, "what was not executed has no result", "leave --result, --ref-type and --ref-id out")
			}
			return checkFence(cmd, fence, look(args))
		},
		do: func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error) {
			v.Executed = args[2] == "executed"
			return ops.CommandRef{Scope: args[0], Key: args[1], Fence: fence}.Settle(ctx, conn, v, by)
		},
		done: func(args []string, _ ops.Result) string { return text.Visible(name(args)) + " settled as " + args[2] },
		why: func(args []string, r ops.Result) (why, next string) {
			switch r.Outcome {
			case ops.Refused:
				return name(args) + " is not unknown", "see: " + look(args)
			case ops.Moved:
				return name(args) + " has been tried again since you looked", "find out about that attempt: " + look(args)
			}
			return fmt.Sprintf("there is no command %s in scope %s", args[1], args[0]), "see: pawl commands list --stale"
		}}.on(cmd)
}
