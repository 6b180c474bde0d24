package pawlsqs_test

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// A handler may take far longer than the visibility timeout. No other receiver gets its message
// until the ceiling.
func TestHeartbeat_HoldsAMessageUpToTwelveHours(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{Visibility: 70 * time.Second})
		f.send("a")
		start := time.Now()
		d := f.one()
		for ceiling := start.Add(12*time.Hour - 2*time.Second); time.Now().Before(ceiling); {
			time.Sleep(min(45*time.Second, time.Until(ceiling)))
			if f.visible() != 0 {
				t.Fatalf("visible again after %v", time.Since(start))
			}
		}
		time.Sleep(time.Minute) // the next beat notices
		if f.visible() != 1 {
			t.Fatal("still hidden past twelve hours")
		}
		if got := f.source.Stats(); got.Held != 0 || got.LostHandles != 1 {
			t.Fatalf("source %+v", got)
		}
		f.must(f.source.Ack(t.Context(), committed(d)...)) // expired: counted, no error
		if got := f.source.Stats(); got.LostHandles != 2 || got.Acked != 0 {
			t.Fatalf("source %+v", got)
		}
	})
}

// Prefetched messages are held from their receive, in calls of at most ten.
func TestHeartbeat_HoldsPrefetchedMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		var ds []pawl.Delivery
		for i := range 35 {
			f.send(strconv.Itoa(i))
		}
		for len(ds) < 35 {
			ds = append(ds, f.receive()...)
		}
		time.Sleep(time.Hour)
		if got := f.server.Stats("q"); got.InFlight != 35 || got.Received != 35 {
			t.Fatalf("server %+v", got)
		}
		if got := f.source.Stats(); got.Held != 35 || got.Extended < 35*350 || got.LostHandles != 0 {
			t.Fatalf("source %+v", got)
		}
		f.must(f.source.Ack(t.Context(), committed(ds...)...))
	})
}

// Errors of the service cost extensions, not messages, because there are more attempts before the
// timeout.
func TestHeartbeat_SurvivesErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{
			Fail: func(c sqstest.Call) *sqstest.Error {
				// as often as the SDK retries
				if c.Op == "ChangeMessageVisibilityBatch" && c.N%6 < 3 {
					return sqstest.Internal()
				}
				return nil
			},
			FailEntry: func(c sqstest.Call, _ int) *sqstest.Error {
				if c.Op == "ChangeMessageVisibilityBatch" && c.N%6 == 3 {
					return sqstest.Throttled()
				}
				return nil
			},
		}, pawlsqs.Config{Visibility: 2 * time.Minute})
		f.send("a")
		f.send("b")
		ds := f.receive()
		time.Sleep(time.Hour)
		if got := f.server.Stats("q"); got.InFlight != 2 || got.Received != 2 {
			t.Fatalf("server %+v", got)
		}
		f.must(f.source.Ack(t.Context(), committed(ds...)...))
	})
}

// An expired handle is dropped; other handles are not.
func TestHeartbeat_DropsDeadHandles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		f.send("a")
		f.send("b")
		ds := f.receive()
		f.settleBehindOurBack(ds[0])
		time.Sleep(11 * time.Second)
		if got := f.source.Stats(); got.Held != 1 || got.LostHandles != 1 {
			t.Fatalf("source %+v", got)
		}
		time.Sleep(10 * time.Minute)
		if got := f.server.Stats("q"); got.InFlight != 1 || got.Received != 2 {
			t.Fatalf("server %+v", got)
		}
		f.must(f.source.Ack(t.Context(), committed(ds...)...))
	})
}

// Not parallel, because it inspects the goroutines of the whole process.
func TestHeartbeat_LeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		ack := func(ds ...pawl.Delivery) error { return f.source.Ack(t.Context(), committed(ds...)...) }
		release := func(ds ...pawl.Delivery) error { return f.source.Release(t.Context(), time.Minute, ds...) }
		for i, done := range []func(...pawl.Delivery) error{ack, release} {
			name := []string{"Ack", "Release"}[i]
			f.send("a")
			f.send("b")
			ds := f.receive()
			f.must(done(ds[0]))
			synctest.Wait()
			if !beating() {
				t.Fatalf("%s of one of two stopped the heartbeat", name)
			}
			f.must(done(ds[1]))
			synctest.Wait()
			if beating() {
				t.Fatalf("the heartbeat runs on after %s", name)
			}
			extended := f.source.Stats().Extended
			time.Sleep(10 * time.Minute)
			if got := f.source.Stats().Extended; got != extended {
				t.Fatalf("%d extensions after %s", got-extended, name)
			}
		}
	})
}

func beating() bool {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Contains(string(stacks), "heart.(*Heart[...]).beat")
}
