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

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

type replay struct {
	*change
	since, until string
}

func newInboxReplay() *cobra.Command {
	r := &replay{}
	verb := operator.Named("inbox_replay")
	cmd := describe("inbox", verb, " CONSUMER [ID...]")
	cmd.Long += "\n\n" + wrap("Name deliveries, or select all that were kept in an interval. Each is replayed in its own transaction. The exit code is 1 if a named delivery, "+
		"or one of the interval that has not taken effect, could not be replayed; the others are replayed.")
	cmd.Example += "\n  pawl inbox replay github --since 6h --reason 'the deploy of noon failed them all' --dry-run"
	r.change = addChange(cmd, true)
	cmd.Flags().StringVar(&r.since, "since", "", "instead of IDs: all kept since this time (RFC 3339) or this long ago (6h)")
	cmd.Flags().StringVar(&r.until, "until", "", "with --since: end of the interval (default: now)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return r.run(cmd, verb, args) }
	return cmd
}

func (r replay) run(cmd *cobra.Command, verb operator.Verb, args []string) error {
	from, until, err := r.interval(cmd, time.Now())
	switch {
	case err != nil:
		return err
	case len(args) == 0 || (len(args) == 1) == (r.since == ""):
		return misused(cmd, "it takes a consumer, and either IDs or --since", "as in: "+cmd.UseLine())
	}
	consumer, keys := args[0], args[1:]
	what := fmt.Sprintf("replay %s of consumer %s", text.Plural(len(keys), "delivery", "deliveries"), consumer)
	if r.since != "" {
		what = fmt.Sprintf("replay the deliveries of consumer %s kept from %s until %s", consumer, from.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))
	}
	return r.change.run(cmd, what, verb.Warning, func(ctx context.Context, conn *pgx.Conn, by ops.By) error {
		if r.since != "" {
			if keys, err = keptKeys(ctx, conn, ops.Deliveries{Consumer: consumer, From: from, Until: until, Limit: 1000}); err != nil {
				return err
			}
			if other := notAConsumer(consumer); other != "" && len(keys) == 0 {
				progress(cmd)(text.Visible(other))
			}
		}
		done := 0 // deliveries that took effect before
		all := several[string]{change: r.change, name: "key", asked: keys, text: func(key string, result ops.Result) string {
			return fmt.Sprintf("delivery %s will run again (%s)", text.Visible(key), replayed(result))
		}, miss: func(key string, result ops.Result) *miss {
			if r.since != "" && result.Was == "processed" {
				done++
				return nil
			}
			if result.Outcome == ops.Absent {
				return &miss{notSeen(consumer, key) + ", and none was kept", cmp.Or(notAConsumer(consumer), result.Hint)}
			}
			return &miss{fmt.Sprintf("delivery %s is %s", key, strings.TrimSpace(string(result.Outcome)+" "+result.Was)), result.Hint}
		}}
		if r.since != "" {
			all.footer = func(w io.Writer) {
				fmt.Fprintf(w, "%s looked at, %d took effect before\n", text.Plural(len(keys), "delivery", "deliveries"), done)
			}
		}
		return all.run(cmd, func(key string) (ops.Result, error) {
			return verb.Run(ctx, conn, values{"consumer": consumer, "key": key}.of, by)
		})
	})
}

// replayed names the job that runs the delivery again.
func replayed(r ops.Result) string {
	switch {
	case r.JobID == 0:
		return "a new job"
	case r.Was == "":
		return fmt.Sprintf("job %d, new", r.JobID)
	}
	return fmt.Sprintf("job %d, was %s", r.JobID, r.Was)
}

func (r replay) interval(cmd *cobra.Command, now time.Time) (from, until time.Time, err error) {
	if r.since == "" && r.until != "" {
		return from, until, misused(cmd, "--until goes with --since", "add --since")
	}
	until = now
	for _, f := range []struct {
		flag, text string
		into       *time.Time
	}{{"since", r.since, &from}, {"until", r.until, &until}} {
		if f.text == "" {
			continue
		}
		if ago, err := time.ParseDuration(f.text); err == nil {
			*f.into = now.Add(-ago)
		} else if *f.into, err = time.Parse(time.RFC3339, f.text); err != nil {
			return from, until, misused(cmd, fmt.Sprintf("--%s %q is neither a time nor a duration", f.flag, f.text), "as in: --"+f.flag+" 2026-11-21T12:00:00Z, or 6h")
		}
	}
	if r.since != "" && !from.Before(until) {
		return from, until, misused(cmd, "the interval is empty", "pass a --since before --until")
	}
	return from, until, nil
}

// keptKeys reads all keys before the first replay, because replayed deliveries stay in the list.
func keptKeys(ctx context.Context, conn *pgx.Conn, s ops.Deliveries) (keys []string, err error) {
	for {
		page, err := s.List(ctx, conn)
		if err != nil {
			return nil, err
		}
		for _, d := range page.Rows {
			keys = append(keys, d.Key)
		}
		if s.After = page.Next; s.After == "" {
			return keys, nil
		}
	}
}
