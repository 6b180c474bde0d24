package cli

import (
	"cmp"
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
		Args:    takes(2),
	}
	return report[remembered]{
		read: func(ctx context.Context, conn *pgx.Conn, args []string) (r remembered, err error) {
			ref := ops.DeliveryRef{Consumer: args[0], Key: args[1]}
			r.Delivery, err = ref.Get(ctx, conn)
			if r.not = errors.Is(err, pawl.ErrNotFound); r.not {
				r.Delivery = ops.Delivery{Consumer: ref.Consumer, Key: ref.Key}
				r.Changes, err = ref.Changes(ctx, conn) // the audit may say who forgot it
			}
			return r, err
		},
		print: func(cmd *cobra.Command, r remembered) error {
			if r.not {
				return nil
			}
			return printed(deliveryText)(cmd, r.Delivery)
		},
		verdict: func(cmd *cobra.Command, r remembered) error {
			if !r.not {
				return nil
			}
			return failed(cmd, errors.New(notSeen(r.Consumer, r.Key)), cmp.Or(notAConsumer(r.Consumer), forgottenBy(r.Changes)))
		},
	}.on(cmd)
}

// remembered is what the inbox remembers of a delivery, or not.
type remembered struct {
	ops.Delivery
	not bool
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

func notSeen(consumer, key string) string {
	return fmt.Sprintf("consumer %s remembers no delivery %s", consumer, key)
}

// forgottenBy returns what the audit says about a delivery that is not remembered.
func forgottenBy(changes []ops.Change) string {
	if n := len(changes); n > 0 {
		last := changes[n-1]
		return fmt.Sprintf("%s forgot it at %s: %s", last.Actor, last.At.UTC().Format(time.RFC3339), last.Reason)
	}
	return "it was never received, or its retention has passed; the id is the key that its sender chose"
}
