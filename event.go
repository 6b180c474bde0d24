package pawl

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/internal/callback"
)

// An EventKind names what happened. Metrics use the same words.
type EventKind string

// The kinds of events. docs/reference/events.md says which operations report each.
const (
	EventSucceeded           EventKind = "succeeded"             // first effect committed
	EventReplay              EventKind = "replay"                // a stored answer was returned
	EventDuplicateSkipped    EventKind = "duplicate_skipped"     // known; acknowledged
	EventDuplicateFiltered   EventKind = "duplicate_filtered"    // known by a mark; acknowledged
	EventConflict            EventKind = "conflict"              // in progress now; released
	EventMismatch            EventKind = "mismatch"              // known key, different payload
	EventStaleTakeover       EventKind = "stale_takeover"        // dead worker's work taken over
	EventStored              EventKind = "stored"                // stored as a job
	EventDeliveryStale       EventKind = "delivery_stale"        // older than memory; dead letter
	EventSuperseded          EventKind = "superseded"            // a newer one took effect; dropped
	EventHeld                EventKind = "held"                  // earlier ones are missing
	EventGap                 EventKind = "gap"                   // earlier ones missing too long
	EventSuspect             EventKind = "suspect"               // may crash workers: to run alone
	EventRetryable           EventKind = "retryable"             // failed; will be retried
	EventFailed              EventKind = "failed"                // failed for good: dead letter
	EventSnoozed             EventKind = "snoozed"               // handler asked to run later
	EventCancelled           EventKind = "cancelled"             // by its handler or an operator
	EventWoken               EventKind = "woken"                 // notification; Count jobs found
	EventPolled              EventKind = "polled"                // poll; Count jobs found
	EventTicked              EventKind = "ticked"                // a schedule's jobs were enqueued
	EventTicksSkipped        EventKind = "ticks_skipped"         // ticks skipped after an outage
	EventGuardAlreadyHandled EventKind = "guard_already_handled" // the user's row is done or swept
	EventStaleWriteRefused   EventKind = "stale_write_refused"   // attempt lost its fence; stopped
	EventWastedWork          EventKind = "wasted_work"           // the transaction was lost
	EventCommitUnknown       EventKind = "commit_unknown"        // reply lost; asking the database
	EventUnknown             EventKind = "unknown"               // outcome unknown; not run again
	EventStepRepeated        EventKind = "step_repeated"         // first call may have executed
	EventStepTwice           EventKind = "step_twice"            // provider acted twice for a step
	EventInvalid             EventKind = "invalid"               // no key, or over a limit
	EventReceived            EventKind = "received"              // Count messages; Age of oldest
	EventEmptyReceive        EventKind = "empty_receive"         // the source had no messages
	EventAcknowledged        EventKind = "acknowledged"          // removed from the source
	EventReleased            EventKind = "released"              // returned to the source
	EventHandleLost          EventKind = "handle_lost"           // cannot be settled; it returns
	EventWebhookRefused      EventKind = "webhook_refused"       // not verified; answered 4xx
	EventWebhookMissing      EventKind = "webhook_missing"       // sent but not known; recovered
	EventReceiveFailed       EventKind = "receive_failed"        // source error; backing off
	EventReceivePaused       EventKind = "receive_paused"        // too many stored or dead (Count)
	EventAckFailed           EventKind = "ack_failed"            // effect durable; it comes again
	EventError               EventKind = "error"                 // background work failed; retried
)

// An Event is one thing that happened. Fields that do not apply are zero; more may be added.
type Event struct {
	Kind      EventKind
	Op        string // the operation, as in [Error].Op: "inbox.claim", "job.finish"
	Scope     string // consumer or queue
	Key       string
	MessageID string
	JobID     int64
	JobKind   string
	Fence     int64  // of the attempt: it grows each time the row is claimed
	Step      string // of a call in package step
	Provider  string // the system that Step calls
	Attempt   int
	Count     int // of things, if one event stands for several; 0 means 1
	Err       error
	Took      time.Duration // of the handler
	Age       time.Duration // since the oldest of the messages was sent
}

// Hooks receive events. OnEvent must be quick, because the work waits for it. If OnEvent panics or
// exits its goroutine, the event is lost and the work goes on. The first panic in a process is
// logged to [slog.Default], and [HookPanics] counts all. The zero Hooks are those of the context
// ([WithHooks]); without any they log to [slog.Default].
type Hooks struct {
	OnEvent func(context.Context, Event)
}

// Emit reports e to the hooks.
func (h Hooks) Emit(ctx context.Context, e Event) {
	if h.OnEvent == nil {
		h, ctx = inherited(ctx)
	}
	err := callback.Do("Hooks.OnEvent", func() error {
		h.OnEvent(ctx, e)
		return nil
	})
	if err == nil || hookPanics.Add(1) > 1 {
		return
	}
	_ = callback.Do("", func() error { // the logger itself may panic
		slog.Default().ErrorContext(ctx, "pawl: a hook panicked; more panics are counted and not logged", "panic", err.Error(), "event", string(e.Kind),
			"stack", callback.StackOf(err))
		return nil
	})
}

var hookPanics atomic.Int64

// HookPanics returns how often hooks have panicked in this process.
func HookPanics() int64 { return hookPanics.Load() }

type hooksKey struct{}

// WithHooks returns a context in which the zero [Hooks] call h. A source, step, command or webhook
// without hooks of its own then reports to h in calls with this context. Package service does this
// for all that its parts call. A zero h changes nothing.
func WithHooks(ctx context.Context, h Hooks) context.Context {
	if h.OnEvent == nil {
		return ctx
	}
	return context.WithValue(ctx, hooksKey{}, h)
}

// inherited returns the hooks of the context, and a context without them, so that hooks which emit
// to the zero Hooks do not call themselves.
func inherited(ctx context.Context) (Hooks, context.Context) {
	if h, _ := ctx.Value(hooksKey{}).(Hooks); h.OnEvent != nil {
		return h, context.WithValue(ctx, hooksKey{}, Hooks{})
	}
	return LogTo(nil), ctx
}

// Join returns hooks that call each of hs in turn. Zero Hooks among them log to [slog.Default].
func Join(hs ...Hooks) Hooks {
	hs = slices.Clone(hs)
	for i, h := range hs {
		if h.OnEvent == nil {
			hs[i] = LogTo(nil)
		}
	}
	return Hooks{OnEvent: func(ctx context.Context, e Event) {
		for _, h := range hs {
			h.Emit(ctx, e)
		}
	}}
}

// LogTo returns hooks that write one structured line per event to l, or to [slog.Default] if l is
// nil. Routine events (succeeded, replay, duplicate_skipped, duplicate_filtered,
// guard_already_handled, stored, superseded, conflict, woken, polled, ticked, received,
// empty_receive, acknowledged, released) are logged at debug. A coming retry is logged at info.
// Events that need attention, such as failed, mismatch, invalid, error and ack_failed, are logged
// at warn or error.
func LogTo(l *slog.Logger) Hooks {
	return Hooks{OnEvent: func(ctx context.Context, e Event) {
		to := l
		if to == nil {
			to = slog.Default()
		}
		level := e.level()
		if to.Enabled(ctx, level) {
			to.LogAttrs(ctx, level, "pawl: "+string(e.Kind), e.attrs()...)
		}
	}}
}

func (e Event) level() slog.Level {
	if e.Kind == EventMismatch && e.Op == "command.claim" {
		return slog.LevelInfo // the caller got the error and must fix it
	}
	return e.Kind.level()
}

func (k EventKind) level() slog.Level {
	switch k {
	case EventSucceeded, EventReplay, EventDuplicateSkipped, EventDuplicateFiltered, EventGuardAlreadyHandled, EventStored, EventSuperseded, EventWoken, EventPolled, EventTicked, EventReceived, EventEmptyReceive, EventConflict,
		EventAcknowledged, EventReleased:
		return slog.LevelDebug
	case EventHeld, EventRetryable, EventSnoozed, EventCancelled, EventStaleTakeover, EventSuspect, EventHandleLost:
		return slog.LevelInfo
	case EventMismatch, EventFailed, EventInvalid, EventUnknown, EventDeliveryStale, EventStepTwice:
		return slog.LevelError
	default:
		return slog.LevelWarn
	}
}

func (e Event) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 10)
	text := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	number := func(name string, value int64) {
		if value != 0 {
			attrs = append(attrs, slog.Int64(name, value))
		}
	}
	text("op", e.Op)
	text("scope", e.Scope)
	text("key", e.Key)
	text("message_id", e.MessageID)
	number("job_id", e.JobID)
	text("job_kind", e.JobKind)
	text("step", e.Step)
	text("provider", e.Provider)
	number("attempt", int64(e.Attempt))
	number("fence", e.Fence)
	number("count", int64(e.Count))
	if e.Took > 0 {
		attrs = append(attrs, slog.Duration("took", e.Took))
	}
	if e.Age > 0 {
		attrs = append(attrs, slog.Duration("age", e.Age))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
		text("stack", callback.StackOf(e.Err))
	}
	return attrs
}

// Counters count events by kind. The zero value is ready; its methods are safe for concurrent use.
type Counters struct {
	counts sync.Map // EventKind to *atomic.Int64
}

// Hooks returns hooks that feed the counters.
func (c *Counters) Hooks() Hooks {
	return Hooks{OnEvent: func(_ context.Context, e Event) {
		n, ok := c.counts.Load(e.Kind)
		if !ok {
			n, _ = c.counts.LoadOrStore(e.Kind, new(atomic.Int64))
		}
		n.(*atomic.Int64).Add(int64(max(e.Count, 1)))
	}}
}

// String lists the counts, as "duplicate_skipped=2 succeeded=40"; "none" if there are none.
func (c *Counters) String() string {
	var parts []string
	c.counts.Range(func(kind, n any) bool {
		parts = append(parts, fmt.Sprintf("%s=%d", kind, n.(*atomic.Int64).Load()))
		return true
	})
	if len(parts) == 0 {
		return "none"
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// Count returns the number of events of one kind.
func (c *Counters) Count(kind EventKind) int64 {
	n, ok := c.counts.Load(kind)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}
