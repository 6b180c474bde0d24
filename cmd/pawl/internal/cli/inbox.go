package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

func newInbox() *cobra.Command {
	cmd := group("inbox", "Show what is remembered of a delivery, forget it, or replay it")
	cmd.Long = `The inbox remembers, for each consumer, the keys of the deliveries that it has received. A remembered delivery does not run again,
however often it arrives and from any source.

  its job is a dead letter      pawl dlq retry; it need not be forgotten
  its job was discarded         pawl inbox replay, from the copy that was kept
  its effect was undone         pawl inbox forget, then pawl inbox replay, or have it sent again
  it has taken effect           leave it: another copy is a duplicate`
	cmd.Example = `  pawl inbox show orders order-17
  pawl inbox forget orders order-17 --reason 'booked and reversed by hand; they send it anew' --yes
  pawl inbox replay orders order-17 --reason 'the account exists now' --yes`
	cmd.AddCommand(newInboxShow(), newInboxReplay())
	addVerbs(cmd, operator.Deliveries)
	return cmd
}

func newInboxShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show CONSUMER ID",
		Short:   "Show what is remembered of a delivery, and changes by operators",
		Example: "  pawl inbox show orders order-17\n  pawl inbox show orders order-17 --json | jq .job_id",
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 2 {
			return misused(cmd, fmt.Sprintf("it takes 2 arguments, not %d", len(args)), "as in: "+cmd.UseLine())
		}
		ref := ops.DeliveryRef{Consumer: args[0], Key: args[1]}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			d, err := ref.Get(ctx, conn)
			missing := errors.Is(err, pawl.ErrNotFound)
			if missing {
				d = ops.Delivery{Consumer: ref.Consumer, Key: ref.Key}
				d.Changes, err = ref.Changes(ctx, conn) // the audit may say who forgot it
			}
			switch {
			case err != nil:
				return err
			case *asJSON:
				err = printJSON(cmd.OutOrStdout(), d)
			case !missing:
				_, err = fmt.Fprint(cmd.OutOrStdout(), deliveryText(d))
			}
			if err != nil || !missing {
				return err
			}
			return failed(cmd, errors.New(notSeen(args)), forgottenBy(d.Changes))
		})
	}
	return cmd
}

func deliveryText(d ops.Delivery) string {
	var out sheet
	out.title("delivery %s of consumer %s", d.Key, d.Consumer)
	out.field("received", "%s", when(d.ReceivedAt, d.ReadAt))
	if d.ProcessedAt.IsZero() {
		out.field("processed", "not yet")
	} else {
		out.field("processed", "%s", when(d.ProcessedAt, d.ReadAt))
	}
	switch {
	case d.JobStatus != "":
		out.field("job", "%d, %s", d.JobID, d.JobStatus)
	case d.JobID != 0:
		out.field("job", "%d, gone", d.JobID)
	}
	out.text("result", d.ResultRef)
	kept := "not kept"
	if d.Kept {
		kept = fmt.Sprintf("%d octets in pawl.delivery", d.KeptOctets)
	}
	out.field("payload", "%s, fingerprint %s", kept, d.Fingerprint)
	out.audit(d.Changes)
	return out.String()
}

func notSeen(args []string) string {
	return fmt.Sprintf("consumer %s remembers no delivery %s", args[0], args[1])
}

// forgottenBy returns what the audit says about a delivery that is not remembered.
func forgottenBy(changes []ops.Change) string {
	if n := len(changes); n > 0 {
		last := changes[n-1]
		return fmt.Sprintf("%s forgot it at %s: %s", last.Actor, last.At.UTC().Format(time.RFC3339), last.Reason)
	}
	return "it was never received, or its retention has passed; the id is the key that its sender chose"
}
