package pawlsqs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// T76: SQS goes on handing messages to a poll whose client has disconnected, and they stay hidden
// until their timeout. A stop during a poll must not cause that. Messages that arrive after the
// stop are visible again when the poll has ended.
func TestT76_StopDuringAPollStrandsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{AbandonedPolls: true}, pawlsqs.Config{Visibility: 10 * time.Minute})
		start := time.Now()
		err := f.stopDuringPoll(5*time.Second, 8*time.Second)
		wantCanceled(t, err)
		if took := time.Since(start); took < 8*time.Second || took > 9*time.Second {
			t.Fatalf("the poll ended after %v", took)
		}
		if got := f.server.Stats("q"); got.Received != 1 || got.Ready != 1 || got.Abandoned != 0 {
			t.Fatalf("stranded: %+v", got)
		}
		if got := f.source.Stats(); got.Held != 0 || got.Released != 1 {
			t.Fatalf("source %+v", got)
		}
	})
}

// A poll that is cut off does strand its message, so the test above can fail.
func TestT76_CutOffPollStrands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{AbandonedPolls: true}, pawlsqs.Config{})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := f.client.ReceiveMessage(ctx, f.poll()); err == nil {
			t.Fatal("the poll was not cut off")
		}
		f.send("a")
		synctest.Wait()
		if got := f.server.Stats("q"); got.Abandoned != 1 || got.InFlight != 1 {
			t.Fatalf("server %+v", got)
		}
	})
}

// A drain waits no longer than the poll, even if no message arrives.
func TestDrain_BoundedByWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{AbandonedPolls: true}, pawlsqs.Config{Wait: 3 * time.Second})
		start := time.Now()
		wantCanceled(t, f.stopDuringPoll(time.Second, time.Hour))
		if took := time.Since(start); took != 3*time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

// If the endpoint hangs, a drain waits only ten seconds more.
func TestDrain_BoundedWhenTheEndpointHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{Latency: func(c sqstest.Call) time.Duration {
			if c.Op == "ReceiveMessage" {
				return time.Hour
			}
			return 0
		}}, pawlsqs.Config{Wait: 3 * time.Second})
		start := time.Now()
		wantCanceled(t, f.stopDuringPoll(time.Second, 2*time.Hour))
		if took := time.Since(start); took != 13*time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

// stopDuringPoll polls, cancels after stop, sends a message after send, and returns
// Receive's error.
func (f *fixture) stopDuringPoll(stop, send time.Duration) error {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	defer time.AfterFunc(stop, cancel).Stop()
	sent := make(chan error, 1)
	sender := time.AfterFunc(send, func() { sent <- f.trySend("late") })
	ds, err := f.source.Receive(ctx, 10)
	if !sender.Stop() {
		f.must(<-sent)
	}
	if len(ds) != 0 {
		f.Fatalf("received %+v after the stop", ds)
	}
	return err
}

func TestReceive_TakesNothingAfterTheStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		f.send("a")
		ctx, stop := context.WithCancel(t.Context())
		stop()
		_, err := f.source.Receive(ctx, 10)
		wantCanceled(t, err)
		if got := f.server.Stats("q"); got.Received != 0 {
			t.Fatalf("server %+v", got)
		}
	})
}

func TestReceive_MaxIsOneToTen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{Wait: pawlsqs.ShortPoll})
		for range 12 {
			f.send("a")
		}
		if _, err := f.source.Receive(t.Context(), 0); pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
			t.Fatalf("got %v", err)
		}
		var ds []pawl.Delivery
		for _, c := range []struct{ max, want int }{{1, 1}, {100, 10}, {100, 1}, {100, 0}} {
			got, err := f.source.Receive(t.Context(), c.max)
			f.must(err)
			if len(got) != c.want {
				t.Fatalf("max %d: received %d, want %d", c.max, len(got), c.want)
			}
			ds = append(ds, got...)
		}
		if got := f.source.Stats(); got.Polls != 4 || got.EmptyPolls != 1 || got.Received != 12 {
			t.Fatalf("source %+v", got)
		}
		f.must(f.source.Ack(t.Context(), committed(ds...)...))
	})
}

// Under all faults at once no message is lost. A database would absorb duplicates by these keys.
func TestChaos_EveryKeyArrivesAndTheQueueDrains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const messages, seed = 300, 42
		f := setup(t, sqstest.Chaos(seed, sqstest.Rates{Duplicate: .05, LoseDelete: .05, LoseReceive: .03, Error: .03,
			Throttle: .02, EntryError: .05, MaxLatency: 50 * time.Millisecond, Reorder: true, AbandonedPolls: true}), pawlsqs.Config{})
		f.sendMany(messages)
		seen := map[string]bool{}
		for range 2000 {
			ds, err := f.source.Receive(t.Context(), 10)
			if err != nil {
				time.Sleep(time.Second)
				continue
			}
			for _, d := range ds {
				seen[d.Key] = true
			}
			_ = f.source.Ack(t.Context(), committed(ds...)...) // messages not deleted return
			if got := f.server.Stats("q"); got.Ready+got.InFlight == 0 {
				break
			}
		}
		if got := f.server.Stats("q"); len(seen) != messages || got.Ready+got.InFlight != 0 || got.Duplicated*got.LostDeletes*got.LostReceives == 0 {
			t.Fatalf("seed %d: %d keys, server %+v, source %+v", seed, len(seen), got, f.source.Stats())
		}
	})
}
