package pawl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
)

func TestCounters_CountAtOnce(t *testing.T) {
	t.Parallel()
	var counters pawl.Counters
	hooks := counters.Hooks()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				hooks.Emit(t.Context(), pawl.Event{Kind: pawl.EventSucceeded})
				// One event may stand for several.
				hooks.Emit(t.Context(), pawl.Event{Kind: pawl.EventAckFailed, Count: 3})
			}
		})
	}
	all.Wait()
	if f, a, n := counters.Count(pawl.EventSucceeded), counters.Count(pawl.EventAckFailed), counters.Count(pawl.EventFailed); f != 800 || a != 2400 || n != 0 {
		t.Errorf("counted %d, %d, %d", f, a, n)
	}
}

func TestJoin_CallsEach(t *testing.T) {
	t.Parallel()
	var order []string
	note := func(name string) pawl.Hooks {
		return pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) { order = append(order, name+" "+e.Key) }}
	}
	pawl.Join(note("a"), pawl.Join(note("b"), note("c"))).Emit(t.Context(), pawl.Event{Key: "k"})
	if got := strings.Join(order, ", "); got != "a k, b k, c k" {
		t.Errorf("called %s", got)
	}
}

// LogTo writes one line per event, with a level by urgency and without absent fields.
func TestLogTo_OneLineAnEvent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	hooks := pawl.LogTo(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
	for want, e := range map[string]pawl.Event{
		`level=DEBUG msg="pawl: succeeded"`:                     {Kind: pawl.EventSucceeded},
		`level=DEBUG msg="pawl: duplicate_skipped" key=k`:       {Kind: pawl.EventDuplicateSkipped, Key: "k"},
		`level=INFO msg="pawl: retryable" attempt=2 error=boom`: {Kind: pawl.EventRetryable, Attempt: 2, Err: errors.New("boom")},
		`level=WARN msg="pawl: ack_failed" count=3`:             {Kind: pawl.EventAckFailed, Count: 3},
		`level=WARN msg="pawl: error"`:                          {Kind: pawl.EventError},
		`level=WARN msg="pawl: a kind of tomorrow"`:             {Kind: "a kind of tomorrow"},
		`level=INFO msg="pawl: mismatch" op=command.claim`:      {Kind: pawl.EventMismatch, Op: "command.claim"},
		`level=ERROR msg="pawl: mismatch" op=o scope=s key=k message_id=m job_id=7 took=1s`: {
			Kind: pawl.EventMismatch, Op: "o", Scope: "s", Key: "k", MessageID: "m", JobID: 7, Took: time.Second},
	} {
		out.Reset()
		hooks.Emit(t.Context(), e)
		if got := strings.TrimSpace(out.String()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}

	out.Reset()
	quiet := pawl.LogTo(slog.New(slog.NewTextHandler(&out, nil)))
	quiet.Emit(t.Context(), pawl.Event{Kind: pawl.EventSucceeded})
	if out.Len() > 0 {
		t.Errorf("what happens all day was logged at the default level: %s", out.String())
	}
}

// A hook that panics loses its event. Work and other hooks go on, and panics are counted.
func TestHooks_APanicIsCountedAndSwallowed(t *testing.T) {
	before, heard := pawl.HookPanics(), 0
	hooks := pawl.Join(pawl.Hooks{OnEvent: func(context.Context, pawl.Event) { panic("a hook") }},
		pawl.Hooks{OnEvent: func(context.Context, pawl.Event) { heard++ }})
	hooks.Emit(t.Context(), pawl.Event{Kind: pawl.EventSucceeded})
	hooks.Emit(t.Context(), pawl.Event{Kind: pawl.EventSucceeded})
	if n := pawl.HookPanics() - before; n != 2 || heard != 2 {
		t.Errorf("%d panics counted, want 2; the other hook heard %d events, want 2", n, heard)
	}
}

// A log line names job, kind, queue, step and provider. A conflict is logged at debug.
func TestLogTo_NamesWhatAPersonLooksFor(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	hooks := pawl.LogTo(slog.New(slog.NewTextHandler(&out, nil)))
	hooks.Emit(t.Context(), pawl.Event{Kind: pawl.EventFailed, Op: "job.fail", Scope: "mail", JobID: 17, JobKind: "welcome", Step: "send", Provider: "ses"})
	hooks.Emit(t.Context(), pawl.Event{Kind: pawl.EventConflict, Op: "consumer.claim"})
	for _, part := range []string{" scope=mail", " job_id=17", " job_kind=welcome", " step=send", " provider=ses"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %s in %s", part, out.String())
		}
	}
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("a conflict at info: %s", out.String())
	}
}

func TestCounters_Print(t *testing.T) {
	t.Parallel()
	c := &pawl.Counters{}
	if got := fmt.Sprint(c); got != "none" {
		t.Errorf("got %s", got)
	}
	c.Hooks().Emit(t.Context(), pawl.Event{Kind: pawl.EventSucceeded, Count: 3})
	c.Hooks().Emit(t.Context(), pawl.Event{Kind: pawl.EventDuplicateSkipped})
	if got := fmt.Sprint(c); got != "duplicate_skipped=1 succeeded=3" {
		t.Errorf("got %s", got)
	}
}

// Zero Hooks are the context's, and log in Join. Hooks that emit to them do not call themselves.
func TestWithHooks(t *testing.T) {
	t.Parallel()
	var told []string
	ctx := pawl.WithHooks(t.Context(), pawl.Hooks{OnEvent: func(ctx context.Context, e pawl.Event) {
		told = append(told, "outer "+e.Op)
		pawl.Hooks{}.Emit(ctx, pawl.Event{Kind: pawl.EventSucceeded, Op: "again"}) // to the log
	}})
	pawl.Hooks{}.Emit(ctx, pawl.Event{Kind: pawl.EventSucceeded, Op: "zero"})
	pawl.Hooks{}.Emit(pawl.WithHooks(ctx, pawl.Hooks{}), pawl.Event{Kind: pawl.EventSucceeded, Op: "kept"})
	own := pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) { told = append(told, "own "+e.Op) }}
	own.Emit(ctx, pawl.Event{Kind: pawl.EventSucceeded, Op: "own"})
	pawl.Join(own, pawl.Hooks{}).Emit(ctx, pawl.Event{Kind: pawl.EventSucceeded, Op: "joined"})
	pawl.Hooks{}.Emit(pawl.WithHooks(ctx, own), pawl.Event{Kind: pawl.EventSucceeded, Op: "inner"})
	if got := strings.Join(told, ", "); got != "outer zero, outer kept, own own, own joined, own inner" {
		t.Error(got)
	}
}
