package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/ops"
)

func newInbox() *cobra.Command {
	cmd := group("inbox", "Look at what is remembered of a delivery, forget it, and have it tried again")
	cmd.Long = `The inbox remembers, for each consumer, which deliveries it has seen, by the key that their sender gave them. A delivery that is
remembered does not run again, however often it comes and whoever sends it.

  its job is a dead letter      pawl dlq retry: it is this delivery, and needs no forgetting
  its job was discarded         pawl inbox replay: from what was kept of it
  its effect was taken back     pawl inbox forget, then pawl inbox replay, or have it sent again
  it has taken effect           leave it: what comes again is a duplicate`
	cmd.Example = `  pawl inbox show orders order-17
  pawl inbox forget orders order-17 --reason 'booked and reversed by hand; they send it anew' --yes
  pawl inbox replay orders order-17 --reason 'the account exists now' --yes`
	cmd.AddCommand(newInboxShow(), newInboxForget(), newInboxReplay())
	return cmd
}

func newInboxShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show CONSUMER ID",
		Short:   "Show what is remembered of a delivery, and what operators did",
		Example: "  pawl inbox show orders order-17\n  pawl inbox show orders order-17 --json | jq .job",
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 2 {
			return misused(cmd, fmt.Sprintf("it takes 2 arguments, not %d", len(args)), "as in: "+cmd.UseLine())
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			s, found, err := ops.ShowInbox(ctx, conn, args[0], args[1])
			if err != nil {
				return err
			}
			if *asJSON {
				err = printJSON(cmd.OutOrStdout(), seenToJSON(s, found))
			} else if found {
				_, err = fmt.Fprint(cmd.OutOrStdout(), seenText(s))
			}
			if err != nil || found {
				return err
			}
			return failed(cmd, errors.New(notSeen(args)), forgottenBy(s.Changes))
		})
	}
	return cmd
}

func newInboxForget() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget CONSUMER ID --reason TEXT",
		Short: "Forget a delivery, so that it runs as new when it comes again",
		Long: `Forgets one delivery: the same message, when it comes again, runs as new, and its effect may then be there twice. Nothing else runs a
delivery past the inbox. It is refused while a job owns the delivery. What was kept of it as it came stays in pawl.delivery. Who and
why go to pawl.audit.`,
		Example: "  pawl inbox forget orders order-17 --reason 'booked and reversed by hand; they send it anew' --yes",
	}
	return verb{arguments: 2, what: func(args []string) string { return fmt.Sprintf("delivery %s of consumer %s", args[1], args[0]) },
		warning: "the same message then takes effect again",
		locked:  "the delivery is locked by an open transaction, most likely of its handler",
		flags: func(cmd *cobra.Command, by *ops.By) {
			cmd.Flags().Func("processed-at", "when it had taken effect, as you saw it in inbox show --json, or \"never\": if that is not so any more, nothing changes", func(text string) (err error) {
				var at time.Time
				if text != "never" {
					at, err = time.Parse(time.RFC3339Nano, text)
				}
				by.ProcessedAt = &at
				return err
			})
		},
		do: func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (answer, error) {
			r, err := ops.ForgetInbox(ctx, conn, args[0], args[1], by)
			a := answer{json: forgetJSON{string(r.Outcome), given(r.Job), given(string(r.Was)), given(r.Hint)}}
			switch r.Outcome {
			case ops.Forgotten:
				a.done = fmt.Sprintf("delivery %s of consumer %s forgotten", visible(args[1]), visible(args[0]))
			case ops.Moved:
				a.why, a.next = fmt.Sprintf("delivery %s of consumer %s has taken effect since you looked, or anew", args[1], args[0]), "see: pawl inbox show "+quoted(args[0])+" "+quoted(args[1])
			case ops.Refused:
				a.why, a.next = fmt.Sprintf("job %d owns the delivery and is %s", r.Job, r.Was), r.Hint
			default:
				a.why, a.next = notSeen(args), "the id is the key that its sender gave it: see the producer"
			}
			return a, err
		}}.on(cmd)
}

func notSeen(args []string) string {
	return fmt.Sprintf("consumer %s remembers no delivery %s", args[0], args[1])
}

// forgottenBy says what became of a delivery that is not remembered, as far as anybody knows.
func forgottenBy(changes []ops.Change) string {
	if n := len(changes); n > 0 {
		last := changes[n-1]
		return fmt.Sprintf("%s forgot it at %s: %s", last.Actor, last.At.UTC().Format(time.RFC3339), last.Reason)
	}
	return "it never came, or longer ago than is remembered; the id is the key that its sender gave it"
}

func seenText(s ops.Seen) string {
	var out strings.Builder
	field := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "  %-10s "+format+"\n", append([]any{name}, args...)...)
	}
	fmt.Fprintf(&out, "delivery %s of consumer %s\n", visible(s.MessageID), visible(s.Consumer))
	field("received", "%s", when(s.ReceivedAt, s.ReadAt))
	if s.ProcessedAt.IsZero() {
		field("processed", "not yet")
	} else {
		field("processed", "%s", when(s.ProcessedAt, s.ReadAt))
	}
	switch {
	case s.JobStatus != "":
		field("job", "%d, %s", s.Job, s.JobStatus)
	case s.Job != 0:
		field("job", "%d, gone", s.Job)
	}
	if s.ResultRef != "" {
		field("result", "%s", visible(s.ResultRef))
	}
	kept := "not kept"
	if s.Kept {
		kept = fmt.Sprintf("%d octets in pawl.delivery", s.KeptOctets)
	}
	field("payload", "%s, fingerprint %x", kept, s.Fingerprint)
	field("audit", "changes by hand: %d", len(s.Changes))
	for _, c := range s.Changes {
		fmt.Fprintf(&out, "    %s\n", visible(fmt.Sprintf("%s %s by %s: %s", c.At.UTC().Format(time.RFC3339), c.Verb, c.Actor, c.Reason)))
	}
	return out.String()
}

type seenJSON struct {
	Found       bool         `json:"found"`
	Consumer    string       `json:"consumer"`
	MessageID   string       `json:"message_id"`
	Fingerprint *string      `json:"fingerprint"` // in hexadecimal; null, as all below: nothing is remembered
	ReceivedAt  *time.Time   `json:"received_at"`
	ProcessedAt *time.Time   `json:"processed_at"` // null: it has not taken effect
	Job         *int64       `json:"job"`          // that owns it, or owned it
	JobStatus   *string      `json:"job_status"`   // null: there is no such job any more
	ResultRef   *string      `json:"result_ref"`
	KeptOctets  *int         `json:"kept_octets"` // null: it was not kept as it came
	Changes     []changeJSON `json:"changes"`
}

func seenToJSON(s ops.Seen, found bool) seenJSON {
	j := seenJSON{Found: found, Consumer: s.Consumer, MessageID: s.MessageID, Fingerprint: given(fmt.Sprintf("%x", s.Fingerprint)),
		ReceivedAt: given(s.ReceivedAt.UTC()), ProcessedAt: given(s.ProcessedAt.UTC()), Job: given(s.Job), JobStatus: given(string(s.JobStatus)),
		ResultRef: given(s.ResultRef), Changes: each(s.Changes, changeToJSON)}
	if s.Kept {
		j.KeptOctets = &s.KeptOctets
	}
	return j
}

type forgetJSON struct {
	Outcome string  `json:"outcome"` // forgotten; refused, absent
	Job     *int64  `json:"job"`     // that owns the delivery, if refused
	Was     *string `json:"was"`     // the status of that job
	Hint    *string `json:"hint"`    // the next step, if refused
}
