package cli

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

func (d door) newShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID...",
		Short: "Show a job whole: payload, errors, who holds it, what operators did; or as the archive kept it",
		Example: fmt.Sprintf("  pawl %[1]s show 17\n  pawl %[1]s show 17 --json | jq -r '.jobs[0].args.base64' | base64 -d > payload",
			d.name),
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := jobIDs(cmd, args)
		if err != nil {
			return err
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			s, err := d.look(ctx, cmd, conn, ids)
			if err == nil {
				err = s.print(cmd.OutOrStdout(), *asJSON)
			}
			if err != nil {
				return err
			}
			return missed(cmd, len(ids), s.misses)
		})
	}
	return cmd
}

// shown is what there is of the jobs asked for.
type shown struct {
	jobs     []ops.Detail
	archived []ops.ArchivedJob
	absent   []absentJSON
	misses   []miss
}

func (d door) look(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, ids []int64) (shown, error) {
	s := shown{absent: []absentJSON{}}
	for _, id := range ids {
		detail, found, err := ops.Show(ctx, conn, id)
		switch {
		case err != nil:
			return s, err
		case !found:
			if err := d.lookBack(ctx, cmd, conn, id, detail.Changes, &s); err != nil {
				return s, err
			}
		case d.only != nil && !slices.Contains(d.only, detail.Status):
			s.misses = append(s.misses, miss{fmt.Sprintf("job %d is %s, not a dead letter", id, detail.Status),
				fmt.Sprintf("see: pawl jobs show %d", id)})
		default:
			s.jobs = append(s.jobs, detail)
		}
	}
	return s, nil
}

// lookBack looks for a job that is gone in the archive of those that finished.
func (d door) lookBack(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, id int64, changes []ops.Change, s *shown) error {
	job, found, err := ops.Archived(ctx, conn, id)
	switch {
	case err != nil:
		return err
	case !found:
		s.absent = append(s.absent, absentJSON{id, each(changes, changeToJSON)})
		s.misses = append(s.misses, miss{fmt.Sprintf("there is no job %d", id), whereabouts(cmd, changes)})
	case d.only != nil:
		s.misses = append(s.misses, miss{fmt.Sprintf("job %d has finished", id), fmt.Sprintf("see: pawl jobs show %d", id)})
	default:
		s.archived = append(s.archived, job)
	}
	return nil
}

// whereabouts says what became of a job that is gone, as far as anybody knows.
func whereabouts(cmd *cobra.Command, changes []ops.Change) string {
	if n := len(changes); n > 0 && changes[n-1].After == nil {
		last := changes[n-1]
		return fmt.Sprintf("%s discarded it at %s: %s", last.Actor, last.At.UTC().Format(time.RFC3339), last.Reason)
	}
	return "it finished, or was never there; see: " + lister(cmd)
}

func (s shown) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, shownJSON{each(s.jobs, detailToJSON), each(s.archived, archivedToJSON), s.absent})
	}
	_, err := io.WriteString(w, strings.Join(append(each(s.jobs, detailText), each(s.archived, archivedText)...), "\n"))
	return err
}

func detailText(d ops.Detail) string {
	var out strings.Builder
	field := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "  %-10s "+format+"\n", append([]any{name}, args...)...)
	}
	lines := func(all []string) {
		for _, line := range all {
			fmt.Fprintf(&out, "    %s\n", line)
		}
	}
	fmt.Fprintf(&out, "job %d\n", d.ID)
	field("queue", "%s", visible(d.Queue))
	field("kind", "%s", visible(d.Kind))
	if d.Lane != "" {
		field("lane", "%s", visible(d.Lane))
	}
	field("status", "%s", d.Status)
	field("attempts", "%d of %d, %d crashes", d.Attempts, d.MaxAttempts, d.Crashes)
	field("priority", "%d", d.Priority)
	field("fence", "%d", d.Fence)
	field("created", "%s", when(d.CreatedAt, d.ReadAt))
	field("available", "%s", when(d.AvailableAt, d.ReadAt))
	if d.Holder != nil {
		field("held by", "%s", holderText(*d.Holder, d.ReadAt))
	}
	if headers, err := json.Marshal(d.Headers); err == nil && d.Headers != nil {
		field("headers", "%s", visible(string(headers)))
	}
	if len(d.Steps) > 0 {
		field("steps", "%d", len(d.Steps))
		lines(each(d.Steps, stepText))
	}
	field("errors", "%d kept", len(d.Errors))
	lines(each(d.Errors, errorText))
	field("payload", "%d octets, SHA-256 %x", len(d.Args), sha256.Sum256(d.Args))
	lines(payloadLines(d.Args))
	field("audit", "changes by hand: %d", len(d.Changes))
	lines(each(d.Changes, changeText))
	if d.Status == ops.StatusDeadLetter {
		field("next", "%s", visible(adviceOnJob(d)))
	}
	return out.String()
}

func stepText(s ops.Effect) string {
	text := fmt.Sprintf("%s: %s, %s, sent key %s", s.Step, s.Status, plural(s.Calls, "call", "calls"), s.ProviderKey)
	if s.InDoubt > 0 {
		text += fmt.Sprintf(", of which %d may have landed", s.InDoubt)
	}
	if s.Failure != "" || s.FailureCode != "" {
		text += ", " + strings.TrimPrefix(s.FailureCode+": "+s.Failure, ": ")
	}
	return visible(text)
}

// adviceOnJob is what to do about a dead letter, and what may have happened already.
func adviceOnJob(d ops.Detail) string {
	id := fmt.Sprint(d.ID)
	retry, discard := "pawl dlq retry "+id+" --reason …", "pawl dlq discard "+id+" --reason …"
	if c := pawl.Code(d.LastCode); c == pawl.CodeMessageReused || c == pawl.CodeDeliveryStale {
		return adviceOnLetter(id, d.LastCode, d.Crashes)
	}
	for _, s := range d.Steps {
		if s.Status == ops.EffectPlanned && s.InDoubt > 0 {
			return fmt.Sprintf("a call of step %s may have landed. %s is safe for it: the step asks, calls again with its key or becomes unknown, as its policy says. "+
				"Ask the provider for %s before you discard it", s.Step, retry, s.ProviderKey)
		}
	}
	for _, s := range d.Steps {
		if s.Status == ops.EffectFailedFinal {
			return fmt.Sprintf("step %s was refused for good, and a retry meets the stored refusal at once. If it may be accepted now: %s, then %s; else %s",
				s.Step, againLine(s.EffectID, s.Fence), retry, discard)
		}
	}
	return adviceOnLetter(id, d.LastCode, d.Crashes)
}

func holderText(h ops.Holder, now time.Time) string {
	lease := "its lease ends " + when(h.LeaseExpiresAt, now)
	if !h.LeaseExpiresAt.After(now) {
		lease = "its lease ended " + when(h.LeaseExpiresAt, now) + ", the next sweep takes the job back"
	}
	if h.WorkerID == 0 {
		return "an attempt without a worker; " + lease
	}
	presence := "no presence lock"
	if h.Present {
		presence = "with a presence lock"
	}
	return fmt.Sprintf("worker %d, %s, seen %s ago, %s; %s", h.WorkerID, visible(h.Name), span(now.Sub(h.SeenAt)), presence, lease)
}

func errorText(e ops.Error) string {
	text := visible(e.Error)
	if e.Code != "" {
		text = visible(e.Code) + ": " + text
	}
	return fmt.Sprintf("%s attempt %d: %s", e.At.UTC().Format(time.RFC3339), e.Attempt, text)
}

func changeText(c ops.Change) string {
	became := "deleted"
	if c.After != nil {
		became = statusOf(c.After)
	}
	return visible(fmt.Sprintf("%s %s by %s, %s → %s: %s", c.At.UTC().Format(time.RFC3339), c.Verb, c.Actor, statusOf(c.Before), became, c.Reason))
}

func statusOf(record []byte) string {
	var row struct{ Status string }
	if json.Unmarshal(record, &row) != nil {
		return "?"
	}
	return row.Status
}
