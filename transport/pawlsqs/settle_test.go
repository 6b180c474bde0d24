package pawlsqs_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// T75: a redelivery beside its original has the same message id. With message ids as entry ids, SQS
// would refuse the whole batch, in the delete and in the heartbeat.
func TestT75_RedeliveryInTheSameBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{Duplicate: func(sqstest.Arrival) bool { return true }}, pawlsqs.Config{})
		f.send("a")
		ds := append(f.receive(), f.receive()...)
		if len(ds) != 2 || ds[0].MessageID != ds[1].MessageID {
			t.Fatalf("got %+v", ds)
		}
		time.Sleep(5 * time.Minute)
		if got := f.server.Stats("q"); got.InFlight != 2 || got.Received != 2 {
			t.Fatalf("the heartbeat did not hold both: %+v", got)
		}
		f.must(f.source.Ack(t.Context(), committed(ds...)...))
		if got := f.server.Stats("q"); got.Deleted != 2 || got.InFlight != 0 {
			t.Fatalf("server %+v", got)
		}
	})
}

func TestAck_InBatchesOfTen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		var ds []pawl.Delivery
		for i := range 25 {
			f.send(strings.Repeat("k", i+1))
		}
		for len(ds) < 25 {
			ds = append(ds, f.receive()...)
		}
		f.must(f.source.Ack(t.Context(), committed(ds...)...))
		if got := f.source.Stats(); got.Acked != 25 || got.Held != 0 {
			t.Fatalf("source %+v", got)
		}
		f.must(f.source.Ack(t.Context()))
	})
}

// Entries of a delete that fail by a fault of the service are tried once more.
func TestAck_RetriesTheServicesFailures(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{FailEntry: func(c sqstest.Call, entry int) *sqstest.Error {
			if c.Op == "DeleteMessageBatch" && c.N == 1 && entry == 1 {
				return sqstest.Internal()
			}
			return nil
		}}, pawlsqs.Config{})
		f.send("a")
		f.send("b")
		f.must(f.source.Ack(t.Context(), committed(f.receive()...)...))
		if got := f.source.Stats(); got.Acked != 2 || got.AckFailures != 0 {
			t.Fatalf("source %+v", got)
		}
	})
}

// Messages not deleted are counted in one error, and return.
func TestAck_ReportsWhatIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{FailEntry: func(c sqstest.Call, entry int) *sqstest.Error {
			if c.Op == "DeleteMessageBatch" && entry == 0 {
				return sqstest.Internal()
			}
			return nil
		}}, pawlsqs.Config{})
		for _, key := range []string{"a", "b", "c"} {
			f.send(key)
		}
		err := f.source.Ack(t.Context(), committed(f.receive()...)...)
		wantAdvice(t, err, "sqs.ack", "1 of 3 messages not deleted", "InternalError", "absorbed")
		if got := f.source.Stats(); got.Acked != 2 || got.AckFailures != 1 || got.Held != 0 {
			t.Fatalf("source %+v", got)
		}
		time.Sleep(31 * time.Second)
		if d := f.one(); d.Receives != 2 {
			t.Fatalf("got %+v", d)
		} else {
			f.must(f.source.Release(t.Context(), 0, d))
		}
	})
}

func TestAck_ReportsAQueueThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		f.send("a")
		ds := f.receive()
		f.deleteQueue()
		wantAdvice(t, f.source.Ack(t.Context(), committed(ds...)...), "1 of 1", "does not exist", "region")
		_, err := f.source.Receive(t.Context(), 1)
		wantAdvice(t, err, "sqs.receive", "does not exist")
		if got := f.source.Stats(); got.PollErrors != 1 || got.AckFailures != 1 {
			t.Fatalf("source %+v", got)
		}
	})
}

// SQS confirms a delete, and the message is redelivered all the same.
func TestAck_LostDeleteIsRedelivered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{LoseDelete: func(a sqstest.Arrival) bool { return a.Receives == 1 }}, pawlsqs.Config{})
		f.send("a")
		first := f.one()
		f.must(f.source.Ack(t.Context(), committed(first)...))
		time.Sleep(31 * time.Second)
		second := f.one()
		if second.Key != first.Key || second.Receives != 2 {
			t.Fatalf("got %+v", second)
		}
		f.must(f.source.Ack(t.Context(), committed(second)...))
	})
}

func TestRelease_AtOnceAndLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		f.send("a")
		f.must(f.source.Release(t.Context(), 0, f.one()))
		f.must(f.source.Release(t.Context(), -time.Second, f.one()))
		d := f.one()
		f.must(f.source.Release(t.Context(), 90*time.Second+1, d)) // rounded up
		time.Sleep(90*time.Second + 500*time.Millisecond)
		if f.visible() != 0 {
			t.Fatal("came back too early")
		}
		time.Sleep(time.Second)
		if f.visible() != 1 {
			t.Fatal("did not come back")
		}
		f.must(f.source.Release(t.Context(), 0, d)) // visible already
		if got := f.source.Stats(); got.Released != 3 || got.LostHandles != 1 || got.Held != 0 {
			t.Fatalf("source %+v", got)
		}
	})
}

// SQS refuses a timeout beyond twelve hours from the receive. Release cuts the delay to the rest.
func TestRelease_StaysBelowTheCeiling(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		f.send("a")
		d := f.one()
		time.Sleep(time.Hour)
		f.must(f.source.Release(t.Context(), 24*time.Hour, d))
		time.Sleep(10*time.Hour + 59*time.Minute)
		if f.visible() != 0 {
			t.Fatal("came back too early")
		}
		time.Sleep(2 * time.Minute)
		if f.visible() != 1 {
			t.Fatal("did not come back")
		}
	})
}

// An extension in flight must not overrule the delay of a release.
func TestRelease_WaitsForAnExtensionOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{Latency: func(c sqstest.Call) time.Duration {
			if c.Op == "ChangeMessageVisibilityBatch" && c.N == 1 {
				return 3 * time.Second
			}
			return 0
		}}, pawlsqs.Config{Visibility: time.Minute})
		f.send("a")
		d := f.one()
		time.Sleep(21 * time.Second) // the first beat is sent at 20 s and arrives at 23 s
		f.must(f.source.Release(t.Context(), 5*time.Second, d))
		time.Sleep(5*time.Second + time.Millisecond)
		if f.visible() != 1 {
			t.Fatal("the extension won")
		}
	})
}

func TestRelease_RefusesOthersDeliveries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		f.send("a")
		err := f.source.Release(t.Context(), 0, pawl.Delivery{Handle: "x"}, f.one(), pawl.Delivery{})
		if pawl.CodeOf(err) != pawl.CodeArgumentInvalid || !strings.Contains(err.Error(), "2 of 3") {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		if f.visible() != 1 {
			t.Fatal("the one of ours was not released")
		}
	})
}
