package cli

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func (d jobsGroup) newShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID...",
		Short: "Show all of a job: payload, errors, worker and changes by operators; or its copy in the archive",
		Example: fmt.Sprintf("  pawl %[1]s show 17\n  pawl %[1]s show 17 --json | jq -r '.jobs[0].payload' | base64 -d > payload",
			d.name),
	}
	var ids []int64
	return report[shown]{
		check: func(cmd *cobra.Command, args []string) (err error) {
			ids, err = jobIDs(cmd, args)
			return err
		},
		read: func(ctx context.Context, conn *pgx.Conn, _ []string) (shown, error) {
			s := shown{Jobs: []ops.Job{}, Archived: []ops.Job{}, Absent: []absentJob{}}
			for _, id := range ids {
				if err := d.look(ctx, cmd, conn, ops.JobRef{ID: id}, &s); err != nil {
					return s, err
				}
			}
			return s, nil
		},
		print: printed(func(s shown) string {
			return strings.Join(append(each(s.Jobs, jobText), each(s.Archived, archivedText)...), "\n")
		}),
		verdict: func(cmd *cobra.Command, s shown) error { return missed(cmd, len(ids), s.misses) },
	}.on(cmd)
}

type shown struct {
	Jobs     []ops.Job   `json:"jobs"`
	Archived []ops.Job   `json:"archived"` // finished
	Absent   []absentJob `json:"absent"`
	misses   []miss
}

// An absentJob was deleted. Changes by operators may explain it.
type absentJob struct {
	ID      int64        `json:"id"`
	Changes []ops.Change `json:"changes"`
}

func (d jobsGroup) look(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, ref ops.JobRef, s *shown) error {
	j, err := ref.Get(ctx, conn)
	switch {
	case errors.Is(err, pawl.ErrNotFound):
		return d.lookBack(ctx, cmd, conn, ref, s)
	case err != nil:
		return err
	case d.only != nil && !slices.Contains(d.only, j.Status):
		s.misses = append(s.misses, miss{fmt.Sprintf("job %d is %s, not a dead letter", j.ID, j.Status), fmt.Sprintf("see: pawl jobs show %d", j.ID)})
	default:
		s.Jobs = append(s.Jobs, j)
	}
	return nil
}

// lookBack looks for a deleted job in the archive of finished jobs, and in the audit.
func (d jobsGroup) lookBack(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, ref ops.JobRef, s *shown) error {
	j, err := ref.Archived(ctx, conn)
	switch {
	case errors.Is(err, pawl.ErrNotFound):
		changes, err := ref.Changes(ctx, conn)
		s.Absent = append(s.Absent, absentJob{ref.ID, changes})
		s.misses = append(s.misses, miss{fmt.Sprintf("there is no job %d", ref.ID), whereabouts(cmd, changes)})
		return err
	case err != nil:
		return err
	case d.only != nil:
		s.misses = append(s.misses, miss{fmt.Sprintf("job %d has finished", j.ID), fmt.Sprintf("see: pawl jobs show %d", j.ID)})
	default:
		s.Archived = append(s.Archived, j)
	}
	return nil
}

// whereabouts returns what the audit says about a deleted job.
func whereabouts(cmd *cobra.Command, changes []ops.Change) string {
	if n := len(changes); n > 0 && deleted(changes[n-1]) {
		last := changes[n-1]
		return fmt.Sprintf("%s discarded it at %s: %s", last.Actor, last.At.UTC().Format(time.RFC3339), last.Reason)
	}
	return "it finished, or never existed; see: " + lister(cmd)
}

func jobText(j ops.Job) string {
	var out sheet
	out.title("job %d", j.ID)
	out.jobHead(j)
	out.field("status", "%s", j.Status)
	out.field("attempts", "%d of %d, %s", j.Attempts, j.MaxAttempts, text.Plural(j.Crashes, "crash", "crashes"))
	out.jobCounts(j)
	out.field("available", "%s", when(j.AvailableAt, j.ReadAt))
	if !j.LeaseExpiresAt.IsZero() {
		out.field("held by", "%s", holderText(j))
	}
	out.headers(j.Headers)
	if len(j.Steps) > 0 {
		out.field("steps", "%d", len(j.Steps))
		out.lines(each(j.Steps, jobStepText))
	}
	out.field("errors", "%d kept", len(j.Errors))
	out.lines(each(j.Errors, errorText))
	out.payload(j.Payload)
	out.audit(j.Changes)
	if j.Status == ops.StatusDeadLetter {
		out.field("next", "%s", adviceOnJob(j))
	}
	return out.String()
}

func archivedText(j ops.Job) string {
	var out sheet
	out.title("job %d, from the archive", j.ID)
	out.jobHead(j)
	out.field("finished", "%s", when(j.FinishedAt, j.ReadAt))
	out.field("attempts", "%d, %s", j.Attempts, text.Plural(j.Crashes, "crash", "crashes"))
	out.jobCounts(j)
	out.headers(j.Headers)
	out.payload(j.Payload)
	return out.String()
}

func (s *sheet) jobHead(j ops.Job) {
	s.field("queue", "%s", j.Queue)
	s.field("kind", "%s", j.Kind)
	s.text("lane", j.Lane)
}

func (s *sheet) jobCounts(j ops.Job) {
	s.field("priority", "%d", j.Priority)
	s.field("fence", "%d", j.Fence)
	s.field("created", "%s", when(j.CreatedAt, j.ReadAt))
}

func (s *sheet) headers(headers map[string]any) {
	if text, err := json.Marshal(headers); err == nil && headers != nil {
		s.field("headers", "%s", text)
	}
}

func (s *sheet) payload(payload []byte) {
	s.field("payload", "%d octets, SHA-256 %x", len(payload), sha256.Sum256(payload))
	s.lines(payloadLines(payload))
}

func jobStepText(s ops.Step) string {
	line := fmt.Sprintf("%s: %s, %s, sent key %s", s.Step, s.Status, text.Plural(s.Calls, "call", "calls"), s.ProviderKey)
	if s.InDoubt > 0 {
		line += fmt.Sprintf(", of which %d may have been executed", s.InDoubt)
	}
	if f := failure(s.FailureCode, s.FailureMessage); f != "" {
		line += ", " + f
	}
	return text.Visible(line)
}

// adviceOnJob returns the next step for a dead letter, and warns about effects it may have had
// already.
func adviceOnJob(d ops.Job) string {
	id := fmt.Sprint(d.ID)
	retry, discard := "pawl dlq retry "+id+" --reason …", "pawl dlq discard "+id+" --reason …"
	if c := pawl.Code(d.LastCode); c == ops.CodeMismatch || c == pawl.CodeDeliveryStale || c == pawl.CodeKeyReused {
		return adviceOnLetter(id, d.LastCode, d.Crashes)
	}
	for _, s := range d.Steps {
		if s.Status == ops.StatusPlanned && s.InDoubt > 0 {
			return fmt.Sprintf("a call of step %s may have been executed. %s is safe for it: the step asks, calls again with its key or becomes unknown, as its policy says. "+
				"Ask the provider for %s before you discard it", s.Step, retry, s.ProviderKey)
		}
	}
	for _, s := range d.Steps {
		if s.Status == ops.StatusFailedFinal {
			return fmt.Sprintf("step %s was refused for good, and a retry meets the stored refusal at once. If it may be accepted now: %s, then %s; else %s",
				s.Step, againLine(s.Ref()), retry, discard)
		}
	}
	return adviceOnLetter(id, d.LastCode, d.Crashes)
}

func holderText(j ops.Job) string {
	lease := "its lease ends " + when(j.LeaseExpiresAt, j.ReadAt)
	if !j.LeaseExpiresAt.After(j.ReadAt) {
		lease = "its lease ended " + when(j.LeaseExpiresAt, j.ReadAt) + ", the next sweep takes the job back"
	}
	if j.WorkerID == 0 {
		return "an attempt without a worker; " + lease
	}
	presence := "no presence lock"
	if j.WorkerPresence {
		presence = "with a presence lock"
	}
	return fmt.Sprintf("worker %d, %s, seen %s ago, %s; %s", j.WorkerID, j.Worker, span(j.ReadAt.Sub(j.WorkerSeenAt)), presence, lease)
}

func errorText(e ops.JobError) string {
	line := text.Visible(e.Error)
	if e.Code != "" {
		line = text.Visible(e.Code) + ": " + line
	}
	by := ""
	if e.Worker != "" {
		by = " by " + text.Visible(e.Worker)
	}
	return fmt.Sprintf("%s attempt %d%s: %s", e.At.UTC().Format(time.RFC3339), e.Attempt, by, line)
}
