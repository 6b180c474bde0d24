package pawltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// A Job is a job with its payload decoded.
type Job[T any] struct {
	ops.Job
	// Value is the decoded JSON payload. If T is []byte, it is the payload itself.
	Value T
}

// Enqueued returns the jobs of a kind, oldest first, in every status; succeeded jobs are gone. If
// there are not exactly want, the test fails and lists all jobs. db may be your open transaction.
func Enqueued[T any](tb testing.TB, db pawl.DB, kind string, want int) []Job[T] {
	tb.Helper()
	ctx := context.Background()
	jobs, err := jobsOf(ctx, db, ops.Jobs{Kind: kind})
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
	if len(jobs) != want {
		tb.Fatalf("pawltest: %d jobs of kind %q, want %d. There are:%s", len(jobs), kind, want, jobsThere(ctx, db))
		return nil
	}
	found := make([]Job[T], len(jobs))
	for i, j := range jobs {
		if found[i].Job, found[i].Value, err = detailed[T](ctx, db, j.ID); err != nil {
			tb.Fatalf("pawltest: job %d of kind %q: %v", j.ID, kind, err)
		}
	}
	return found
}

// An Event is an event of the outbox with its payload decoded.
type Event[T any] struct {
	ops.OutboxEvent
	Headers map[string]any
	// Value is the decoded JSON payload. If T is []byte, it is the payload itself.
	Value T
}

// Appended returns the unpublished events of a type, oldest first. If there are not exactly want,
// the test fails and lists all events. db may be your open transaction.
func Appended[T any](tb testing.TB, db pawl.DB, eventType string, want int) []Event[T] {
	tb.Helper()
	ctx := context.Background()
	events, err := eventsOf(ctx, db, eventType)
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
	if len(events) != want {
		tb.Fatalf("pawltest: %d events of type %q, want %d. There are:%s", len(events), eventType, want, eventsThere(ctx, db))
		return nil
	}
	found := make([]Event[T], len(events))
	for i, e := range events {
		detail, value, err := detailed[T](ctx, db, e.JobID)
		if err != nil {
			tb.Fatalf("pawltest: event %d of type %q: %v", i, eventType, err)
		}
		found[i] = Event[T]{OutboxEvent: e, Headers: detail.Headers, Value: value}
	}
	return found
}

// Command returns the command with a key. If there is none, the test fails, and lists what is known
// of the key and the scope. To assert that there is none, use [ops.CommandRef].
func Command(tb testing.TB, db pawl.DB, scope, key string) ops.Command {
	tb.Helper()
	ctx := context.Background()
	c, err := ops.CommandRef{Scope: scope, Key: key}.Get(ctx, db)
	if err != nil && !errors.Is(err, pawl.ErrNotFound) {
		tb.Fatalf("pawltest: %v", err)
	}
	if err != nil {
		tb.Fatalf("pawltest: no command %q in scope %q. The scope has:%s\nKnown of the key:%s", key, scope,
			commandsThere(ctx, db, scope), keyKnown(ctx, db, key))
	}
	return c
}

// Seen returns a consumer's record of the delivery with a key. If there is none, the test fails and
// lists what is known of the key. To assert that there is none, use [ops.DeliveryRef].
func Seen(tb testing.TB, db pawl.DB, consumer, key string) ops.Delivery {
	tb.Helper()
	ctx := context.Background()
	d, err := ops.DeliveryRef{Consumer: consumer, Key: key}.Get(ctx, db)
	if err != nil && !errors.Is(err, pawl.ErrNotFound) {
		tb.Fatalf("pawltest: %v", err)
	}
	if err != nil {
		tb.Fatalf("pawltest: consumer %q has not seen %q. Known of the key:%s", consumer, key, keyKnown(ctx, db, key))
	}
	return d
}

func jobsOf(ctx context.Context, db pawl.DB, s ops.Jobs) ([]ops.Job, error) {
	s.Limit = page
	return all(func(after string) (ops.Page[ops.Job], error) {
		s.After = after
		return s.List(ctx, db)
	})
}

func eventsOf(ctx context.Context, db pawl.DB, eventType string) ([]ops.OutboxEvent, error) {
	return all(func(after string) (ops.Page[ops.OutboxEvent], error) {
		return ops.Outbox{EventType: eventType, After: after, Limit: page}.List(ctx, db)
	})
}

func detailed[T any](ctx context.Context, db pawl.DB, id int64) (d ops.Job, value T, err error) {
	d, err = ops.JobRef{ID: id}.Get(ctx, db)
	if errors.Is(err, pawl.ErrNotFound) {
		err = fmt.Errorf("it ended while it was read: drain first, or stop the worker")
	}
	if err != nil {
		return d, value, err
	}
	if raw, ok := any(&value).(*[]byte); ok {
		*raw = d.Payload
		return d, value, nil
	}
	if err = json.Unmarshal(d.Payload, &value); err != nil {
		err = fmt.Errorf("its payload does not fit %T: %w", value, err)
	}
	return d, value, err
}

// The following functions list records for failure messages. If reading fails, they list the error.

const mostOctets = 200 // of a payload in a message

func jobsThere(ctx context.Context, db pawl.DB) string {
	jobs, err := ops.Jobs{Limit: mostTold}.List(ctx, db)
	return there(jobs.Rows, err, "no job", func(j ops.Job) string { return told(j) + payload(ctx, db, j.ID) })
}

func eventsThere(ctx context.Context, db pawl.DB) string {
	events, err := ops.Outbox{Limit: mostTold}.List(ctx, db)
	return there(events.Rows, err, "no event", func(e ops.OutboxEvent) string {
		return fmt.Sprintf("type %q for sink %q, of %s/%s: %s%s", e.EventType, e.Sink, e.AggregateType, e.AggregateID, e.Status, payload(ctx, db, e.JobID))
	})
}

func commandsThere(ctx context.Context, db pawl.DB, scope string) string {
	commands, err := ops.Commands{Scope: scope, Limit: mostTold}.List(ctx, db)
	return there(commands.Rows, err, "no command", func(c ops.Command) string { return fmt.Sprintf("%q: %s %s", c.Key, c.Status, c.FailureMessage) })
}

func keyKnown(ctx context.Context, db pawl.DB, key string) string {
	story, err := ops.Explain(ctx, db, key, "")
	return there(story.Moments, err, "nothing", func(m ops.Moment) string { return fmt.Sprintf("%s of %q: %s %s", m.Kind, m.Scope, m.Event, m.Detail) })
}

func payload(ctx context.Context, db pawl.DB, id int64) string {
	d, err := ops.JobRef{ID: id}.Get(ctx, db)
	switch {
	case errors.Is(err, pawl.ErrNotFound):
		return ", it has ended since"
	case err != nil:
		return ", " + err.Error()
	}
	return fmt.Sprintf(", %.*q", mostOctets, d.Payload)
}

func there[T any](rows []T, err error, none string, line func(T) string) string {
	var lines []string
	for _, row := range rows {
		lines = append(lines, line(row))
	}
	switch {
	case err != nil:
		lines = append(lines, err.Error())
	case len(lines) == 0:
		lines = []string{none}
	case len(lines) == mostTold:
		lines = append(lines, "and perhaps more")
	}
	return "\n\t" + strings.Join(lines, "\n\t")
}
