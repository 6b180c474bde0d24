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

// An EventKind names what happened; metrics use the same words.
type EventKind string

// The events of a delivery or job.
const (
	EventSucceeded           EventKind = "succeeded"             // first effect of an intent committed
	EventReplay              EventKind = "replay"                // a stored answer was returned
	EventDuplicateSkipped    EventKind = "duplicate_skipped"     // seen before; acknowledged without work
	EventConflict            EventKind = "conflict"              // the same intent is being processed now; given back
	EventMismatch            EventKind = "mismatch"              // known key, different payload; dead-lettered
	EventStaleTakeover       EventKind = "stale_takeover"        // work of a dead or frozen worker was taken back
	EventStored              EventKind = "stored"                // stored as a job, to be worked on from the database
	EventDeliveryStale       EventKind = "delivery_stale"        // older than what is remembered; dead-lettered, never run as new
	EventSuperseded          EventKind = "superseded"            // a newer number took effect before; dropped
	EventHeld                EventKind = "held"                  // came before those that must take effect first
	EventGap                 EventKind = "gap"                   // what should come first is missing for long
	EventSuspect             EventKind = "suspect"               // came several times and left no row: stored, to run alone
	EventRetryable           EventKind = "retryable"             // an attempt failed and will be tried again
	EventFailed              EventKind = "failed"                // an attempt failed for good: dead letter
	EventSnoozed             EventKind = "snoozed"               // a handler asked to be called again later; uncharged
	EventCancelled           EventKind = "cancelled"             // ended without success, by its handler or an operator
	EventWoken               EventKind = "woken"                 // a notification told an idle worker of Count jobs
	EventPolled              EventKind = "polled"                // an idle worker found Count jobs by a poll
	EventTicked              EventKind = "ticked"                // a schedule's jobs were enqueued
	EventTicksSkipped        EventKind = "ticks_skipped"         // ticks of a schedule that were left out after an outage
	EventGuardAlreadyHandled EventKind = "guard_already_handled" // the user's own row says it is done, or claimed and swept
	EventStaleWriteRefused   EventKind = "stale_write_refused"   // a fenced-out attempt was stopped
	EventWastedWork          EventKind = "wasted_work"           // a handler ran but its transaction was lost
	EventCommitUnknown       EventKind = "commit_unknown"        // the reply to COMMIT was lost; asking the database
	EventUnknown             EventKind = "unknown"               // it may have taken effect; not run again until settled
	EventStepRepeated        EventKind = "step_repeated"         // a call was repeated although the first may have been executed
	EventStepTwice           EventKind = "step_twice"            // a provider acted twice for one step
	EventInvalid             EventKind = "invalid"               // a message without key or over a limit; dead-lettered
	EventReceived            EventKind = "received"              // a source handed out Count messages; Age of the oldest
	EventEmptyReceive        EventKind = "empty_receive"         // a source had nothing
	EventAcknowledged        EventKind = "acknowledged"          // a source removed messages
	EventReleased            EventKind = "released"              // messages were given back to their source
	EventHandleLost          EventKind = "handle_lost"           // a message could not be held or settled any more: it returns
	EventWebhookRefused      EventKind = "webhook_refused"       // a webhook that could not be verified; answered 4xx, nothing stored
	EventWebhookMissing      EventKind = "webhook_missing"       // a sender says it sent what is not remembered; handed on
	EventReceiveFailed       EventKind = "receive_failed"        // the source answered an error; backing off
	EventReceivePaused       EventKind = "receive_paused"        // nothing is received: too many are stored, or become dead letters (Count)
	EventAckFailed           EventKind = "ack_failed"            // the effect is durable, the message will come again
	EventError               EventKind = "error"                 // housekeeping or the database failed; retried
)

// An Event is one thing that happened. Fields that do not apply are zero; more may be added.
type Event struct {
	Kind      EventKind
	Op        string // the step, as in errors and crash points
	Scope     string // consumer or queue
	Key       string
	MessageID string
	JobID     int64
	JobKind   string // of the job
	Fence     int64  // of the attempt
	Step      string // of a call of another system: package step
	Provider  string // whom that calls
	Attempt   int
	Count     int // how many, where one event stands for several; 0 means 1
	Err       error
	Took      time.Duration // of the handler
	Age       time.Duration // since the oldest of the messages was sent
}

// Hooks receive events. The work waits for OnEvent: it must be quick. If it panics, or exits its
// goroutine, the event is lost and the work goes on; the first panic of the process is logged to
// [slog.Default], and all are counted: see [HookPanics]. The zero Hooks are those that the context
// carries, see [WithHooks]; where it carries none, they log to [slog.Default].
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
	_ = callback.Do("", func() error { // it may be the logger that panics
		slog.Default().ErrorContext(ctx, "pawl: a hook panicked; more panics are counted and not logged", "panic", err.Error(), "event", string(e.Kind),
			"stack", callback.StackOf(err))
		return nil
	})
}

var hookPanics atomic.Int64

// HookPanics returns how often a hook has panicked in this process.
func HookPanics() int64 { return hookPanics.Load() }

type hooksKey struct{}

// WithHooks returns a context with which the zero [Hooks] call h. A source, a step, a command or a webhook that has no hooks of its own then
// tells h what happens in calls with this context. Package service does so for all that its parts call. The zero h changes nothing.
func WithHooks(ctx context.Context, h Hooks) context.Context {
	if h.OnEvent == nil {
		return ctx
	}
	return context.WithValue(ctx, hooksKey{}, h)
}

// inherited returns the hooks that the context carries, and a context without them: hooks that emit to the zero Hooks must not call themselves.
func inherited(ctx context.Context) (Hooks, context.Context) {
	if h, _ := ctx.Value(hooksKey{}).(Hooks); h.OnEvent != nil {
		return h, context.WithValue(ctx, hooksKey{}, Hooks{})
	}
	return LogTo(nil), ctx
}

// Join returns hooks that call each of hs in turn. The zero Hooks among them log to [slog.Default].
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

// LogTo returns hooks that write one structured line an event to l, or to [slog.Default] if l is nil. What happens all
// day (succeeded, replay, duplicate_skipped, guard_already_handled, stored, woken, polled, ticked, and what a source receives, acknowledges and releases, conflict) is
// logged at debug, a coming retry at info, what
// somebody should look at (failed, mismatch, invalid, error, failures to receive or acknowledge) at warn or error.
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
		return slog.LevelInfo // the caller was told: it is theirs to mend
	}
	return e.Kind.level()
}

func (k EventKind) level() slog.Level {
	switch k {
	case EventSucceeded, EventReplay, EventDuplicateSkipped, EventGuardAlreadyHandled, EventStored, EventSuperseded, EventWoken, EventPolled, EventTicked, EventReceived, EventEmptyReceive, EventConflict,
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

// Counters count events by kind. The zero value is ready; all methods may be called at once.
type Counters struct {
	counts sync.Map // EventKind to *atomic.Int64
}

// Hooks returns the hooks that feed the counters.
func (c *Counters) Hooks() Hooks {
	return Hooks{OnEvent: func(_ context.Context, e Event) {
		n, ok := c.counts.Load(e.Kind)
		if !ok {
			n, _ = c.counts.LoadOrStore(e.Kind, new(atomic.Int64))
		}
		n.(*atomic.Int64).Add(int64(max(e.Count, 1)))
	}}
}

// String lists what was counted, as "duplicate_skipped=2 succeeded=40"; "none" if nothing was.
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

// Count returns how many events of one kind were counted.
func (c *Counters) Count(kind EventKind) int64 {
	n, ok := c.counts.Load(kind)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}
