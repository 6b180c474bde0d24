package sqstest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// Each test shows that a fault has its effect. The last ones show that a seed always gives the same
// decisions.

func faulty(f sqstest.Faults) sqstest.Options { return sqstest.Options{Faults: f} }

// The second copy arrives while the first is in flight, and deleting one leaves the other.
func TestFault_Duplicate(t *testing.T) {
	virtual(t, faulty(sqstest.Faults{Duplicate: func(sqstest.Arrival) bool { return true }}), nil, func(f *fixture) {
		id := f.send("a")
		first, second := f.one(0), f.one(0)
		if *first.MessageId != id || *second.MessageId != id || *second.ReceiptHandle == *first.ReceiptHandle {
			f.Fatalf("got %+v and %+v", first, second)
		}
		f.must(f.hide(first, 60)) // both leases are alive
		f.must(f.hide(second, 60))
		f.must(f.delete(first))
		time.Sleep(61 * time.Second)
		f.must(f.delete(f.one(0)))
		time.Sleep(time.Minute)
		f.none(0)
		if got := f.server.Stats("q"); got.Duplicated != 1 || got.Sent != 1 || got.Received != 3 || got.Redelivered != 2 {
			f.Fatalf("stats %+v", got)
		}
	})
}

func TestFault_LoseDelete(t *testing.T) {
	o := faulty(sqstest.Faults{LoseDelete: func(a sqstest.Arrival) bool { return a.Receives == 1 }})
	virtual(t, o, nil, func(f *fixture) {
		f.send("a")
		f.must(f.delete(f.one(0)))
		time.Sleep(31 * time.Second)
		f.must(f.delete(f.one(0)))
		time.Sleep(31 * time.Second)
		f.none(0)
		if got := f.server.Stats("q"); got.LostDeletes != 1 || got.Deleted != 1 {
			f.Fatalf("stats %+v", got)
		}
	})
}

// The messages are in flight and no client has their handles, so they are hidden until their
// timeout. The SDK retries, finds no message, and the caller does not notice.
func TestFault_LoseReceive(t *testing.T) {
	o := faulty(sqstest.Faults{LoseReceive: func(c sqstest.Call, _ int) bool { return c.N == 1 }})
	virtual(t, o, nil, func(f *fixture) {
		f.send("a")
		f.send("b")
		f.none(0)
		if got := f.server.Stats("q"); got.LostReceives != 2 || got.InFlight != 2 {
			f.Fatalf("stats %+v", got)
		}
		time.Sleep(31 * time.Second)
		if ms := f.receive(0); len(ms) != 2 || ms[0].Attributes["ApproximateReceiveCount"] != "2" {
			f.Fatalf("got %+v", ms)
		}
	})
}

// The delete takes effect although the client's connection was dropped. This uses a real
// connection.
func TestFault_Cut(t *testing.T) {
	t.Parallel()
	f := loopback(t, faulty(sqstest.Faults{Cut: func(c sqstest.Call) bool { return c.Op == "DeleteMessage" }}), nil)
	f.send("a")
	m := f.one(0)
	_, err := f.client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &f.url, ReceiptHandle: m.ReceiptHandle}, once)
	if err == nil {
		t.Fatal("the answer arrived")
	}
	if got := f.server.Stats("q"); got.Deleted != 1 {
		t.Fatalf("stats %+v", got)
	}
}

func once(o *sqs.Options) { o.Retryer = aws.NopRetryer{} }

func TestFault_Fail(t *testing.T) {
	virtual(t, faulty(sqstest.Faults{}), nil, func(f *fixture) {
		f.server.SetFaults(sqstest.Faults{Fail: func(c sqstest.Call) *sqstest.Error {
			if c.Op == "SendMessage" && c.N <= 2 {
				return sqstest.Throttled()
			}
			if c.Op == "ReceiveMessage" {
				return sqstest.Internal()
			}
			return nil
		}})
		f.send("a") // the SDK's third attempt
		_, err := f.client.ReceiveMessage(f.Context(), poll(f.url, 0), once)
		f.wantCode(err, "InternalError")
		if got := f.server.Stats("q"); got.Refused != 3 || got.Sent != 1 {
			f.Fatalf("stats %+v", got)
		}
	})
}

func TestFault_FailEntry(t *testing.T) {
	o := faulty(sqstest.Faults{FailEntry: func(_ sqstest.Call, entry int) *sqstest.Error {
		if entry == 1 {
			return sqstest.Internal()
		}
		return nil
	}})
	virtual(t, o, nil, func(f *fixture) {
		out, err := f.client.SendMessageBatch(f.Context(), &sqs.SendMessageBatchInput{QueueUrl: &f.url,
			Entries: []types.SendMessageBatchRequestEntry{
				{Id: aws.String("x"), MessageBody: aws.String("a")}, {Id: aws.String("y"), MessageBody: aws.String("b")}}})
		f.must(err)
		if len(out.Successful) != 1 || *out.Failed[0].Id != "y" || out.Failed[0].SenderFault {
			f.Fatalf("got %+v %+v", out.Successful, out.Failed)
		}
	})
}

func TestFault_Empty(t *testing.T) {
	virtual(t, faulty(sqstest.Faults{Empty: func(sqstest.Call) bool { return true }}), nil, func(f *fixture) {
		f.send("a")
		f.none(0)
		f.one(time.Second) // long polls ask all servers
	})
}

func TestFault_Fewer(t *testing.T) {
	virtual(t, faulty(sqstest.Faults{Fewer: func(c sqstest.Call, _ int) int { return int(c.N) * 2 }}), nil, func(f *fixture) {
		for range 6 {
			f.send("a")
		}
		if got := []int{len(f.receive(0)), len(f.receive(0))}; got[0] != 2 || got[1] != 4 {
			f.Fatalf("received %v", got)
		}
	})
}

func TestFault_Reorder(t *testing.T) {
	last := func(_ string, _ int64, n int) int { return n - 1 }
	virtual(t, faulty(sqstest.Faults{Reorder: last}), nil, func(f *fixture) {
		for i := range 4 {
			f.send(strconv.Itoa(i))
		}
		var order []string
		for _, m := range f.receive(0) {
			order = append(order, *m.Body)
		}
		if got := strings.Join(order, ""); got != "3210" {
			f.Fatalf("got %s", got)
		}
	})
}

func TestFault_Latency(t *testing.T) {
	virtual(t, faulty(sqstest.Faults{}), nil, func(f *fixture) {
		f.server.SetFaults(sqstest.Faults{Latency: func(sqstest.Call) time.Duration { return 3 * time.Second }})
		start := time.Now()
		f.send("a")
		f.took(start, 3*time.Second)
	})
}

// With the fault, a poll whose client has disconnected takes the next message. Without it, the poll
// ends with its client.
func TestFault_AbandonedPolls(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := direct(t, faulty(sqstest.Faults{AbandonedPolls: on}), nil)
			abandonPoll(f)
			f.send("a")
			synctest.Wait()
			want := sqstest.Stats{Sent: 1, Ready: 1}
			if on {
				want = sqstest.Stats{Sent: 1, Received: 1, Abandoned: 1, InFlight: 1}
			}
			if got := f.server.Stats("q"); got != want {
				t.Errorf("abandoned polls %v: stats %+v", on, got)
			}
		})
	}
}

// Over a real connection the server notices that the client disconnected.
func TestPoll_EndsWithItsConnection(t *testing.T) {
	t.Parallel()
	f := loopback(t, sqstest.Options{}, nil)
	abandonPoll(f)
	patience.Until(t, "the poll of a client that hung up takes no message", func() bool {
		f.send("a")
		return len(f.receive(0)) == 1
	})
}

// With the fault, over a real connection, the poll outlives its connection and takes the message.
func TestFault_AbandonedPollOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	f := loopback(t, faulty(sqstest.Faults{AbandonedPolls: true}), nil)
	abandonPoll(f)
	f.send("a")
	patience.Until(t, "a poll that no client reads takes the message", func() bool {
		got := f.server.Stats("q")
		return got.Received == 1 && got.InFlight == 1
	})
}

// abandonPoll starts a long poll, cancels it after 100 ms and waits until the client has ended.
func abandonPoll(f *fixture) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := f.client.ReceiveMessage(ctx, poll(f.url, 20*time.Second))
	if !errors.Is(err, context.DeadlineExceeded) {
		f.Fatalf("got %v", err)
	}
}

var everything = sqstest.Rates{Duplicate: .1, LoseDelete: .1, LoseReceive: .05, Error: .05, Throttle: .02, EntryError: .05,
	Empty: .1, Fewer: .3, MaxLatency: 20 * time.Millisecond, Reorder: true}

// The same seed gives the same decisions in any order of calls. Another seed gives others.
func TestChaos_SameSeedSameDecisions(t *testing.T) {
	t.Parallel()
	decisions := func(seed uint64, backwards bool) []string {
		f := sqstest.Chaos(seed, everything)
		all := make([]string, 500)
		for i := range all {
			n := i
			if backwards {
				n = len(all) - 1 - i
			}
			c := sqstest.Call{Op: "ReceiveMessage", Queue: "q", N: int64(n)}
			a := sqstest.Arrival{Queue: "q", Number: int64(n), Receives: 1}
			all[n] = fmt.Sprint(f.Fail(c), f.FailEntry(c, 3), f.Latency(c), f.LoseReceive(c, 1), f.Empty(c), f.Fewer(c, 10),
				f.Reorder("q", int64(n), 9), f.Duplicate(a), f.LoseDelete(a))
		}
		return all
	}
	if !slices.Equal(decisions(7, false), decisions(7, true)) {
		t.Error("the order of questions matters")
	}
	if slices.Equal(decisions(7, false), decisions(8, false)) {
		t.Error("the seed does not matter")
	}
}

func TestChaos_KeepsItsRates(t *testing.T) {
	t.Parallel()
	f := sqstest.Chaos(3, sqstest.Rates{Duplicate: .05})
	hits := 0
	for i := range 10_000 {
		if f.Duplicate(sqstest.Arrival{Queue: "q", Number: int64(i), Receives: 1}) {
			hits++
		}
	}
	if hits < 400 || hits > 600 {
		t.Fatalf("%d of 10,000 for a rate of .05", hits)
	}
	if none := sqstest.Chaos(3, sqstest.Rates{}); none.Duplicate(sqstest.Arrival{}) || none.Fail(sqstest.Call{}) != nil {
		t.Fatal("rates of zero strike")
	}
}

// A consumer that counts effects sees every message, many twice: no fault loses one. With one
// caller, a whole run repeats exactly from the same seed.
func TestChaos_LosesNothing(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2, 3} {
		first, second := chaoticRun(t, seed), chaoticRun(t, seed)
		if first != second {
			t.Errorf("seed %d: %+v and then %+v", seed, first, second)
		}
	}
}

func chaoticRun(t *testing.T, seed uint64) (stats sqstest.Stats) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 200
		f := direct(t, faulty(sqstest.Chaos(seed, everything)), nil)
		f.client = sqs.New(f.client.Options(), once) // the SDK's retries wait for a random time
		for i := range messages {
			in := &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String(strconv.Itoa(i))}
			for _, err := f.client.SendMessage(t.Context(), in); err != nil; {
				_, err = f.client.SendMessage(t.Context(), in)
			}
		}
		effects, extra := map[string]int{}, 0
		for range 1000 {
			out, err := f.client.ReceiveMessage(t.Context(), poll(f.url, 20*time.Second))
			if err != nil {
				continue
			}
			for _, m := range out.Messages {
				if effects[*m.Body]++; effects[*m.Body] > 1 {
					extra++
				}
				_ = f.delete(m) // a failed delete is a redelivery
			}
			if got := f.server.Stats("q"); got.Ready+got.InFlight == 0 {
				break
			}
		}
		stats = f.server.Stats("q")
		if len(effects) != messages || extra == 0 || stats.Ready+stats.InFlight != 0 {
			t.Errorf("seed %d: %d messages seen, %d extra, stats %+v", seed, len(effects), extra, stats)
		}
	})
	return stats
}
