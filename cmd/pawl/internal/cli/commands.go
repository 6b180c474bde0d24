package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/ops"
)

func newCommands() *cobra.Command {
	cmd := group("commands", "Look at commands, and settle those of which nobody knows whether they took effect")
	cmd.Long = `A command is what a caller asked to happen once under a scope and a key, with the answer that everyone who asks again gets. One whose
attempt fell silent, and which nobody declared repeatable, is unknown: its callers are told so, until somebody has found out.`
	cmd.Example = `  pawl commands list --stale
  pawl commands show orders/acme order-17
  pawl commands settle orders/acme order-17 not_landed --fence 17 --reason 'the provider has no such charge' --yes`
	cmd.AddCommand(newCommandsList(), newCommandsShow(), newCommandsSettle())
	return cmd
}

func newCommandsList() *cobra.Command {
	var f ops.CommandFilter
	var status string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List commands, by scope and key",
		Args:    noArgs,
		Example: "  pawl commands list --stale\n  pawl commands list --scope orders/acme --status unknown --json | jq -r '.commands[].key'",
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Scope, "scope", "", "only of this scope")
	flags.StringVar(&status, "status", "", "only in this status: processing, succeeded, failed_retryable, failed_final, unknown")
	flags.BoolVar(&f.Stale, "stale", false, "only those that nobody can finish without help: unknown, or processing with the lease over")
	flags.IntVar(&f.Limit, "limit", 50, "commands at most, 1 to 1000")
	flags.StringVar(&f.After.Scope, "after-scope", "", "only those behind the last of the page before: its scope")
	flags.StringVar(&f.After.Key, "after-key", "", "and its key")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.Status = ops.CommandStatus(status)
		if err := cmp.Or(checkLimit(cmd, f.Limit), checkStatuses(cmd, ops.CommandStatuses(), f.Status)); err != nil {
			return err
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			commands, err := ops.Commands(ctx, conn, f)
			if err != nil {
				return err
			}
			more := len(commands) == f.Limit
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), commandsJSON{each(commands, commandToJSON), more})
			}
			return printCommands(cmd, commands, more)
		})
	}
	return cmd
}

func printCommands(cmd *cobra.Command, commands []ops.Command, more bool) error {
	if len(commands) == 0 {
		progress(cmd)("no commands")
		return nil
	}
	rows := make([][]string, len(commands))
	for i, c := range commands {
		status := string(c.Status)
		if c.Stale && c.Status == ops.CommandProcessing {
			status += ", lease over"
		}
		rows[i] = []string{cell(c.Scope, nameWidth), cell(c.Key, nameWidth), status, fmt.Sprint(c.Attempts), span(c.ReadAt.Sub(c.CreatedAt)),
			span(c.ReadAt.Sub(c.UpdatedAt)), cell(c.ClaimedBy, nameWidth), cell(strings.TrimPrefix(c.FailureCode+": "+c.Failure, ": "), errorWidth)}
	}
	if err := printTable(cmd.OutOrStdout(), []string{"SCOPE", "KEY", "STATUS", "ATTEMPTS", "AGE", "SINCE", "CLAIMED BY", "FAILURE"}, rows); err != nil {
		return err
	}
	if more {
		last := commands[len(commands)-1]
		progress(cmd)(fmt.Sprintf("there may be more: add --after-scope %s --after-key %s", quoted(last.Scope), quoted(last.Key)))
	}
	return nil
}

func newCommandsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show SCOPE KEY",
		Short:   "Show a command, what it answers in size only, and what operators did",
		Example: "  pawl commands show orders/acme order-17",
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 2 {
			return misused(cmd, fmt.Sprintf("it takes 2 arguments, not %d", len(args)), "as in: "+cmd.UseLine())
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			c, changes, found, err := ops.ShowCommand(ctx, conn, ops.CommandID{Scope: args[0], Key: args[1]})
			switch {
			case err != nil:
				return err
			case !found:
				return failed(cmd, fmt.Errorf("there is no command %s in scope %s", args[1], args[0]), "it never came, or its memory is over; see: pawl explain "+quoted(args[1]))
			case *asJSON:
				return printJSON(cmd.OutOrStdout(), commandDetailJSON{commandToJSON(c), each(changes, changeToJSON)})
			}
			_, err = io.WriteString(cmd.OutOrStdout(), commandText(c, changes))
			return err
		})
	}
	return cmd
}

func commandText(c ops.Command, changes []ops.Change) string {
	var out strings.Builder
	field := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "  %-10s %s\n", name, visible(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(&out, "command %s in scope %s\n", visible(c.Key), visible(c.Scope))
	field("status", "%s", c.Status)
	field("attempts", "%d, fence %d", c.Attempts, c.Fence)
	if c.ClaimedBy != "" {
		field("claimed by", "%s", c.ClaimedBy)
	}
	if !c.LeaseExpiresAt.IsZero() {
		field("lease", "ends %s", when(c.LeaseExpiresAt, c.ReadAt))
	}
	field("created", "%s", when(c.CreatedAt, c.ReadAt))
	field("updated", "%s", when(c.UpdatedAt, c.ReadAt))
	field("remembered", "until %s", when(c.ExpiresAt, c.ReadAt))
	if c.ResponseStatus != 0 {
		field("answer", "HTTP %d, %d octets", c.ResponseStatus, c.ResponseOctets)
	}
	if c.ResultOctets != 0 {
		field("result", "%d octets", c.ResultOctets)
	}
	if c.RefID != "" {
		field("reference", "%s %s", c.RefType, c.RefID)
	}
	if c.Failure != "" || c.FailureCode != "" {
		field("failure", "%s", strings.TrimPrefix(c.FailureCode+": "+c.Failure, ": "))
	}
	field("payload", "fingerprint %x", c.Fingerprint)
	field("audit", "changes by hand: %d", len(changes))
	for _, ch := range changes {
		fmt.Fprintf(&out, "    %s\n", visible(fmt.Sprintf("%s %s by %s: %s", ch.At.UTC().Format(time.RFC3339), ch.Verb, ch.Actor, ch.Reason)))
	}
	return out.String()
}

func newCommandsSettle() *cobra.Command {
	var v ops.CommandVerdict
	cmd := &cobra.Command{
		Use:   "settle SCOPE KEY landed|not_landed --fence N --reason TEXT",
		Short: "Say whether an unknown command took effect",
		Long: `Ends an unknown command after somebody has found out, from the provider or the business rows, whether it took effect. landed: it
succeeded, and everyone who asks again is given the result. not_landed: the next call with the key may run it. The attempt that
fell silent is refused from now on. --fence is what commands show printed when you looked: if another attempt has begun since, your verdict is
not about that one, and nothing changes. Who and why go to pawl.audit.`,
		Example: "  pawl commands settle orders/acme order-17 landed --fence 17 --result '{\"id\": 17}' --reason 'order 17 is there' --yes",
	}
	cmd.Flags().StringVar(&v.Result, "result", "", "the answer from now on, if it landed; usually JSON")
	cmd.Flags().StringVar(&v.RefType, "ref-type", "", "what the result is, for people: order")
	cmd.Flags().StringVar(&v.RefID, "ref-id", "", "and which")
	return verb{arguments: 3, what: func(args []string) string {
		return fmt.Sprintf("command %s of scope %s as %s", args[1], args[0], args[2])
	},
		warning: "a wrong verdict doubles or loses an effect",
		locked:  "the command is locked by an open transaction, most likely of its attempt",
		fence:   func(args []string) string { return "pawl commands show " + quoted(args[0]) + " " + quoted(args[1]) },
		check: func(cmd *cobra.Command, args []string) error {
			if args[2] != "landed" && args[2] != "not_landed" {
				return misused(cmd, fmt.Sprintf("the verdict is landed or not_landed, not %q", args[2]), "as in: "+cmd.UseLine())
			}
			if args[2] == "not_landed" && v != (ops.CommandVerdict{}) {
				return misused(cmd, "what did not land has no result", "leave --result, --ref-type and --ref-id out")
			}
			return nil
		},
		do: func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (answer, error) {
			v.Landed = args[2] == "landed"
			outcome, err := ops.SettleCommand(ctx, conn, ops.CommandID{Scope: args[0], Key: args[1]}, v, by)
			a := answer{json: outcomeJSON{string(outcome)}}
			switch outcome {
			case ops.Settled:
				a.done = fmt.Sprintf("command %s of scope %s settled as %s", visible(args[1]), visible(args[0]), args[2])
			case ops.Refused:
				a.why, a.next = fmt.Sprintf("command %s of scope %s is not unknown", args[1], args[0]), "see: pawl commands show "+quoted(args[0])+" "+quoted(args[1])
			case ops.Moved:
				a.why, a.next = fmt.Sprintf("command %s of scope %s has been tried again since you looked", args[1], args[0]), "find out about that attempt: pawl commands show "+quoted(args[0])+" "+quoted(args[1])
			default:
				a.why, a.next = fmt.Sprintf("there is no command %s in scope %s", args[1], args[0]), "see: pawl commands list --stale"
			}
			return a, err
		}}.on(cmd)
}

type outcomeJSON struct {
	Outcome string `json:"outcome"`
}

type commandsJSON struct {
	Commands []commandJSON `json:"commands"`
	More     bool          `json:"more"` // there may be more behind the last
}

type commandDetailJSON struct {
	commandJSON
	Audit []changeJSON `json:"audit"`
}

type commandJSON struct {
	Scope          string     `json:"scope"`
	Key            string     `json:"key"`
	Status         string     `json:"status"`
	Stale          bool       `json:"stale"`
	Attempts       int        `json:"attempts"`
	Fence          int64      `json:"fence"`
	ClaimedBy      *string    `json:"claimed_by"`
	LeaseExpiresAt *time.Time `json:"lease_expires_at"`
	CreatedAt      time.Time  `json:"created_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
	ExpiresAt      time.Time  `json:"expires_at"`
	ResponseStatus *int       `json:"response_status"`
	ResponseOctets int        `json:"response_octets"`
	ResultOctets   int        `json:"result_octets"`
	RefType        *string    `json:"result_ref_type"`
	RefID          *string    `json:"result_ref_id"`
	FailureCode    *string    `json:"failure_code"`
	Failure        *string    `json:"failure_message"`
	Fingerprint    string     `json:"fingerprint"` // in hexadecimal
}

func commandToJSON(c ops.Command) commandJSON {
	return commandJSON{c.Scope, c.Key, string(c.Status), c.Stale, c.Attempts, c.Fence, given(c.ClaimedBy), given(c.LeaseExpiresAt.UTC()),
		c.CreatedAt.UTC(), c.UpdatedAt.UTC(), c.ExpiresAt.UTC(), given(c.ResponseStatus), c.ResponseOctets, c.ResultOctets, given(c.RefType),
		given(c.RefID), given(c.FailureCode), given(c.Failure), fmt.Sprintf("%x", c.Fingerprint)}
}
