package pawlsqs_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// ReleaseDelay decides how long a released message stays hidden: as asked, longer, not at all, or
// for the rest of its timeout.
func TestRelease_DelayIsTheUsersChoice(t *testing.T) {
	for name, c := range map[string]struct {
		choose func(time.Duration, pawl.Delivery) time.Duration
		asked  time.Duration
		want   time.Duration
	}{
		"asked":   {nil, 5 * time.Second, 5 * time.Second},
		"at once": {func(time.Duration, pawl.Delivery) time.Duration { return 0 }, 5 * time.Second, 0},
		"longer": {func(asked time.Duration, d pawl.Delivery) time.Duration { return asked * time.Duration(2*d.Receives) },
			5 * time.Second, 10 * time.Second},
		"keep":        {func(time.Duration, pawl.Delivery) time.Duration { return pawlsqs.KeepTimeout }, 5 * time.Second, 50 * time.Second},
		"keep, asked": {nil, pawlsqs.KeepTimeout, 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := setup(t, sqstest.Faults{}, pawlsqs.Config{Visibility: time.Minute, ReleaseDelay: c.choose})
				f.send("a")
				d := f.one()
				time.Sleep(10 * time.Second)
				start := time.Now()
				f.must(f.source.Release(t.Context(), c.asked, d))
				for f.visible() == 0 {
					time.Sleep(time.Second)
				}
				if took := time.Since(start); took != c.want {
					t.Errorf("visible after %v, want %v", took, c.want)
				}
			})
		})
	}
}

// After errors that need an operator, polls become rarer, down to one a minute. The first success
// ends that.
func TestPace_WaitsForAnOperator(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		denied := sqstest.Faults{Fail: func(c sqstest.Call) *sqstest.Error {
			if c.Op == "ReceiveMessage" {
				return &sqstest.Error{Shape: "AccessDeniedException", Message: "not authorized", Status: 403}
			}
			return nil
		}}
		f.server.SetFaults(denied)
		start, polls := time.Now(), 0
		for time.Since(start) < 10*time.Minute {
			_, err := f.source.Receive(t.Context(), 10)
			wantAdvice(t, err, "AccessDenied", "IAM")
			polls++
		}
		if polls < 10 || polls > 30 {
			t.Errorf("%d polls in ten minutes", polls)
		}
		f.server.SetFaults(sqstest.Faults{})
		f.send("a")
		f.ack(f.one())
		f.send("b")
		start = time.Now()
		f.ack(f.one())
		if took := time.Since(start); took != 0 {
			t.Errorf("after the first good answer a poll waited %v", took)
		}
		// A stop does not wait for the pause.
		f.server.SetFaults(denied)
		_, _ = f.source.Receive(t.Context(), 10)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start = time.Now()
		if _, err := f.source.Receive(ctx, 10); err == nil || time.Since(start) != 10*time.Millisecond {
			t.Errorf("stopped after %v: %v", time.Since(start), err)
		}
	})
}

// Short polls that find nothing do not spin, and polls stay fast while there is work.
func TestPace_ShortPollsDoNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{Wait: pawlsqs.ShortPoll})
		start := time.Now()
		for time.Since(start) < time.Minute {
			f.none()
		}
		if got := f.source.Stats().Polls; got < 25 || got > 100 {
			t.Errorf("%d polls in an idle minute", got)
		}
		for range 20 {
			f.send("a")
		}
		start = time.Now()
		for range 20 {
			ds, err := f.source.Receive(t.Context(), 1)
			f.must(err)
			f.ack(ds...)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("twenty messages took %v", took)
		}
	})
}

// Hooks receive the events, with counts and the age of the oldest message.
func TestHooks_ReportWhatHappens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []pawl.Event
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{Wait: time.Second, Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}}})
		for _, key := range []string{"a", "b", "c", "d"} {
			f.send(key)
		}
		time.Sleep(90 * time.Second)
		ds := f.receive()
		f.none()
		f.ack(ds[0], ds[1])
		f.must(f.source.Release(t.Context(), 0, ds[2]))
		f.settleBehindOurBack(ds[3])
		time.Sleep(30 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		var got []string
		for _, e := range events {
			if e.Scope != "q" {
				t.Errorf("scope of %+v", e)
			}
			if e.Kind == pawl.EventReceived && e.Age.Round(time.Second) != 91*time.Second && e.Age.Round(time.Second) != 90*time.Second {
				t.Errorf("age of %+v", e)
			}
			got = append(got, strings.Repeat(string(e.Kind)+" ", max(e.Count, 1)))
		}
		want := []string{"received received received received ", "empty_receive ", "acknowledged acknowledged ", "released ", "handle_lost "}
		if !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		backlog, err := f.source.Backlog(t.Context())
		if err != nil || backlog != (pawlsqs.Backlog{Visible: 1}) {
			t.Errorf("backlog %+v, %v", backlog, err)
		}
	})
}
