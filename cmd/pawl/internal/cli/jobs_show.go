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

	"github.com/pawl-go/pawl/ops"
)

func (d door) newShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID...",
		Short: "Show a job whole: payload, errors, who holds it, what operators did",
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
	jobs   []ops.Detail
	absent []absentJSON
	misses []miss
}

func (d door) look(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, ids []int64) (shown, error) {
	s := shown{absent: []absentJSON{}}
	for _, id := range ids {
		detail, found, err := ops.Show(ctx, conn, id)
		switch {
		case err != nil:
			return s, err
		case !found:
			s.absent = append(s.absent, absentJSON{id, each(detail.Changes, changeToJSON)})
			s.misses = append(s.misses, miss{fmt.Sprintf("there is no job %d", id), whereabouts(cmd, detail.Changes)})
		case d.only != nil && !slices.Contains(d.only, detail.Status):
			s.misses = append(s.misses, miss{fmt.Sprintf("job %d is %s, not a dead letter", id, detail.Status),
				fmt.Sprintf("see: pawl jobs show %d", id)})
		default:
			s.jobs = append(s.jobs, detail)
		}
	}
	return s, nil
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
		return printJSON(w, shownJSON{each(s.jobs, detailToJSON), s.absent})
	}
	for i, d := range s.jobs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if _, err := io.WriteString(w, detailText(d)); err != nil {
			return err
		}
	}
	return nil
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
	field("errors", "%d kept", len(d.Errors))
	lines(each(d.Errors, errorText))
	field("payload", "%d octets, SHA-256 %x", len(d.Args), sha256.Sum256(d.Args))
	lines(payloadLines(d.Args))
	field("audit", "changes by hand: %d", len(d.Changes))
	lines(each(d.Changes, changeText))
	return out.String()
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
