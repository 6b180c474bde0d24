package pawlsqs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

const fifoQueue = "q.fifo"

// setupFIFO is setup with a FIFO queue.
func setupFIFO(t *testing.T, faults sqstest.Faults, cfg pawlsqs.Config) *fixture {
	t.Helper()
	server := sqstest.New(sqstest.Options{Faults: faults})
	return openQueue(t, server, newClient(server, "http://sqs.test"), fifoQueue, cfg)
}

// sendIn sends messages of one group. Their keys are group and number, such as "g1".
func (f *fixture) sendIn(group string, numbers ...int) {
	f.Helper()
	for _, n := range numbers {
		f.must(f.trySendIn(group, n))
	}
}

func keysOf(ds []pawl.Delivery) string {
	all := make([]string, len(ds))
	for i, d := range ds {
		all[i] = d.Key
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// wantKeys receives once and compares the keys.
func (f *fixture) wantKeys(want string) []pawl.Delivery {
	f.Helper()
	ds := f.receive()
	if got := keysOf(ds); got != want {
		f.Fatalf("received %q, want %q", got, want)
	}
	return ds
}

func (f *fixture) ack(ds ...pawl.Delivery) {
	f.Helper()
	f.must(f.source.Ack(f.Context(), committed(ds...)...))
}

// A receive returns several messages of one group in order, with the fields a consumer needs to
// keep the order. No more of the group come while one is in flight.
func TestFIFO_GroupsInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setupFIFO(t, sqstest.Faults{}, pawlsqs.Config{})
		f.sendIn("a", 1, 2, 3)
		ds := f.wantKeys("a1 a2 a3")
		if ds[0].OrderingKey != "a" || ds[0].ProducedAt.IsZero() {
			t.Errorf("got %+v", ds[0])
		}
		f.sendIn("a", 4)
		f.sendIn("b", 1)
		f.ack(f.wantKeys("b1")...)
		f.ack(ds[:2]...)
		start := time.Now()
		acked := make(chan error, 1)
		// during the poll
		time.AfterFunc(3*time.Second, func() { acked <- f.source.Ack(t.Context(), committed(ds[2])...) })
		f.ack(f.wantKeys("a4")...)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
		f.must(<-acked)
		if got := f.source.Stats(); got.Acked != 5 || got.Received != 5 || got.Held != 0 {
			t.Errorf("source %+v", got)
		}
	})
}

// Released deliveries keep their place, and block messages behind them that were not received.
func TestFIFO_ReleasedComeInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setupFIFO(t, sqstest.Faults{}, pawlsqs.Config{})
		f.sendIn("a", 1, 2, 3)
		f.must(f.source.Release(t.Context(), 5*time.Second, f.wantKeys("a1 a2 a3")...))
		if got := f.source.Stats(); got.Held != 0 || got.Released != 3 {
			t.Fatalf("source %+v", got)
		}
		start := time.Now()
		f.ack(f.wantKeys("a1 a2 a3")...)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// If a poll's response was lost, the next poll repeats its attempt id and gets the same messages.
// The group does not stay blocked for its visibility timeout.
func TestFIFO_LostAnswerIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setupFIFO(t, sqstest.Faults{LoseReceive: func(c sqstest.Call, _ int) bool { return c.N == 1 }}, pawlsqs.Config{Visibility: time.Hour})
		f.sendIn("a", 1, 2)
		if _, err := f.source.Receive(t.Context(), 10); err == nil {
			t.Fatal("the answer arrived")
		}
		start := time.Now()
		ds := f.wantKeys("a1 a2")
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
		f.ack(ds...)
	})
}

// Concurrent polls have different attempt ids, also after a lost response. They never get the same
// messages.
func TestFIFO_PollsSideBySideShareNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setupFIFO(t, sqstest.Faults{LoseReceive: func(c sqstest.Call, _ int) bool { return c.N <= 2 }}, pawlsqs.Config{})
		f.sendIn("a", 1, 2)
		f.sendIn("b", 1)
		receive := func(most int) []pawl.Delivery {
			ds, err := f.source.Receive(t.Context(), most)
			if err != nil && len(ds) > 0 {
				t.Errorf("%s with %v", keysOf(ds), err)
			}
			return ds
		}
		seen := map[string]int{}
		for range 2 { // lost, then answered
			var both [2][]pawl.Delivery
			var polls sync.WaitGroup
			for i := range both {
				polls.Go(func() { both[i] = receive(2) })
			}
			polls.Wait()
			for _, d := range slices.Concat(both[0], both[1]) {
				seen[d.Key]++
				f.ack(d)
			}
		}
		if len(seen) != 3 || seen["a1"]+seen["a2"]+seen["b1"] != 3 {
			t.Errorf("received %v", seen)
		}
	})
}

// StopWait cuts off a poll and documents the cost.
func TestStopWait_BoundsTheDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, open := range []func(*testing.T, sqstest.Faults, pawlsqs.Config) *fixture{setup, setupFIFO} {
			f := open(t, sqstest.Faults{AbandonedPolls: true}, pawlsqs.Config{StopWait: 2 * time.Second})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			start := time.Now()
			_, err := f.source.Receive(ctx, 10)
			wantCanceled(t, err)
			if took := time.Since(start); took != 3*time.Second {
				t.Errorf("took %v", took)
			}
			time.Sleep(time.Minute) // the server ends the poll that was cut off
		}
	})
}

// A handler that takes twelve virtual hours keeps its group. Other receivers get none of it until
// the ceiling.
func TestFIFO_HeartbeatHoldsTheGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setupFIFO(t, sqstest.Faults{}, pawlsqs.Config{})
		f.sendIn("a", 1, 2)
		held := f.wantKeys("a1 a2")
		other, err := pawlsqs.Open(t.Context(), f.client, fifoQueue, pawlsqs.Config{})
		f.must(err)
		for range 11 {
			time.Sleep(time.Hour)
			ds, err := other.Receive(t.Context(), 10)
			if err != nil || len(ds) > 0 {
				t.Fatalf("another received %s, %v", keysOf(ds), err)
			}
		}
		f.ack(held...)
	})
}

// All faults at once, with two receivers that take groups in order, as a consumer does. A seed
// decides whether they acknowledge, release, stall or are stopped. Each group is first acknowledged
// in the order of its sends, no message is lost, and none is held at the end.
func TestChaos_FIFOKeepsItsOrder(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { chaoticGroups(t, seed) })
		})
	}
}

func chaoticGroups(t *testing.T, seed uint64) {
	const groups, each = 6, 25
	defer func() { // let running work end before the bubble, also after a failure
		time.Sleep(time.Minute)
		if t.Failed() {
			time.Sleep(12 * time.Hour)
		}
	}()
	f := setupFIFO(t, sqstest.Chaos(seed, sqstest.Rates{LoseDelete: .05, LoseReceive: .05, Error: .05, EntryError: .1, Fewer: .3,
		MaxLatency: 30 * time.Millisecond, Reorder: true, AbandonedPolls: true}), pawlsqs.Config{Visibility: 5 * time.Second, Wait: time.Second})
	for n := range each {
		for g := range groups {
			for f.trySendIn(string(rune('a'+g)), n) != nil { // until SQS confirms it
			}
		}
	}
	random := rand.New(rand.NewPCG(seed, 2))
	done := map[string]int{} // effects by group, as a database would know
	sources := []*pawlsqs.Source{f.source, nil}
	left := groups * each
	for turn := 0; left > 0 || f.open() > 0; turn++ {
		if turn == 5000 {
			t.Fatalf("seed %d: %d left, server %+v", seed, left, f.server.Stats(fifoQueue))
		}
		i := random.IntN(2)
		if sources[i] == nil {
			again, err := pawlsqs.Open(t.Context(), f.client, fifoQueue, pawlsqs.Config{Visibility: 5 * time.Second, Wait: time.Second})
			if err != nil {
				continue
			}
			sources[i] = again
		}
		s := sources[i]
		ds, err := s.Receive(t.Context(), 1+random.IntN(10))
		if err != nil {
			continue
		}
		back := map[string]bool{} // groups with a released message
		for i, d := range ds {
			if back[d.OrderingKey] {
				continue
			}
			var n int
			if _, err := fmt.Sscanf(d.Key, d.OrderingKey+"%d", &n); err != nil {
				t.Fatalf("key %q: %v", d.Key, err)
			}
			if n > done[d.OrderingKey] {
				t.Fatalf("seed %d: %s came before %s%d", seed, d.Key, d.OrderingKey, done[d.OrderingKey])
			}
			switch dice := random.IntN(20); {
			case dice < 3:
				back[d.OrderingKey] = true
				behind := slices.DeleteFunc(slices.Clone(ds[i:]), func(o pawl.Delivery) bool { return o.OrderingKey != d.OrderingKey })
				// a failed release returns by itself
				_ = s.Release(t.Context(), time.Duration(random.IntN(3000))*time.Millisecond, behind...)
				continue
			case dice < 5:
				time.Sleep(time.Duration(random.IntN(8)) * time.Second) // a slow handler
			}
			if n == done[d.OrderingKey] {
				done[d.OrderingKey]++
				left--
			}
			_ = s.Ack(t.Context(), committed(d)...)
		}
		if random.IntN(25) == 0 { // a deploy
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_, _ = s.Receive(ended, 1)
			sources[i] = nil
		}
	}
	for _, s := range sources {
		if s == nil {
			continue
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = s.Receive(ended, 1)
		if got := s.Stats(); got.Held != 0 {
			t.Errorf("seed %d: %+v", seed, got)
		}
	}
}

func (f *fixture) open() int {
	got := f.server.Stats(fifoQueue)
	return got.Ready + got.InFlight
}

// trySendIn sends one message of a group, once.
func (f *fixture) trySendIn(group string, n int) error {
	sender, err := pawlsqs.OpenSender(f.Context(), f.client, fifoQueue, "")
	if err != nil {
		return err
	}
	return sender.Send(f.Context(), pawlsqs.Message{Key: fmt.Sprint(group, n), Group: group, Payload: []byte("body")})
}

// If a message of a group is not sent, the Sender does not try those behind it.
func TestFIFO_SenderDoesNotOvertake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setupFIFO(t, sqstest.Faults{FailEntry: func(c sqstest.Call, entry int) *sqstest.Error {
			if c.Op == "SendMessageBatch" && c.N <= 2 && entry == 0 {
				return sqstest.Internal()
			}
			return nil
		}}, pawlsqs.Config{})
		sender, err := pawlsqs.OpenSender(t.Context(), f.client, fifoQueue, "")
		f.must(err)
		var ms []pawlsqs.Message
		for _, key := range []string{"a1", "b1", "a2", "b2", "a3"} {
			ms = append(ms, pawlsqs.Message{Key: key, Group: key[:1], Payload: []byte("x")})
		}
		err = sender.Send(t.Context(), ms...)
		var failed *pawlsqs.SendError
		if !errors.As(err, &failed) || !slices.Equal(failed.Unsent, []int{0, 2, 4}) {
			t.Fatalf("got %v, %+v", err, failed)
		}
		f.must(sender.Send(t.Context(), ms...)) // the queue recognises b1 and b2
		f.ack(f.wantKeys("a1 a2 a3 b1 b2")...)
		long := pawlsqs.Message{Key: strings.Repeat("k", 200), Group: "g", Payload: []byte("x")}
		f.must(sender.Send(t.Context(), long, pawlsqs.Message{Key: "with space", Group: "g", Payload: []byte("x")}))
		for _, bad := range []pawlsqs.Message{{Key: "k", Payload: []byte("x")}, {Key: "k", Group: "g", Payload: []byte("x"), Delay: time.Second}} {
			if err := sender.Send(t.Context(), bad); pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
				t.Errorf("got %v", err)
			}
		}
	})
}

// T74: a redrive makes new messages. The sender's key attribute survives it in both kinds of
// queues. A deduplication id does not, so it gives no key in the dead-letter queue.
func TestT74_KeySurvivesARedrive(t *testing.T) {
	for _, suffix := range []string{"", ".fifo"} {
		t.Run("queue"+suffix, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server := sqstest.New(sqstest.Options{})
				client := newClient(server, "http://sqs.test")
				createQueue(t, client, "dead"+suffix)
				f := openQueue(t, server, client, "q"+suffix, pawlsqs.Config{})
				_, err := client.SetQueueAttributes(t.Context(), &awssqs.SetQueueAttributesInput{QueueUrl: &f.url, Attributes: map[string]string{
					"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead` + suffix + `","maxReceiveCount":1}`}})
				f.must(err)
				sender, err := pawlsqs.OpenSender(t.Context(), client, "q"+suffix, "")
				f.must(err)
				produced := time.Now().Add(-time.Hour).UTC()
				m := pawlsqs.Message{Key: "order-1", Payload: []byte("x"), ProducedAt: produced}
				if suffix != "" {
					m.Group = "g"
				}
				f.must(sender.Send(t.Context(), m))
				first := f.one()
				f.must(f.source.Release(t.Context(), 0, first))
				f.none()

				// The dead-letter queue can be read like any other, with key and receive count.
				dead, err := pawlsqs.Open(t.Context(), client, "dead"+suffix, pawlsqs.Config{})
				f.must(err)
				ds, err := dead.Receive(t.Context(), 10)
				if err != nil || len(ds) != 1 || ds[0].Key != "order-1" || ds[0].MessageID != first.MessageID || ds[0].Receives != 2 {
					t.Fatalf("the dead letter is %+v, %v", ds, err)
				}
				f.must(dead.Release(t.Context(), 0, ds...))
				_, err = client.StartMessageMoveTask(t.Context(), &awssqs.StartMessageMoveTaskInput{
					SourceArn: aws.String("arn:aws:sqs:us-east-1:000000000000:dead" + suffix)})
				f.must(err)
				again := f.one()
				if again.Key != "order-1" || again.MessageID == first.MessageID || again.Receives != 1 || !again.ProducedAt.Equal(produced) {
					t.Errorf("redriven: %+v", again)
				}
				f.ack(again)
			})
		})
	}
}

func (f *fixture) none() {
	f.Helper()
	ds, err := f.source.Receive(f.Context(), 10)
	if err != nil || len(ds) > 0 {
		f.Fatalf("received %s, %v; want nothing", keysOf(ds), err)
	}
}

// T37: Info returns how long a message can be redelivered without another send.
func TestT37_RedeliveryHorizon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const day = 24 * time.Hour
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		if got := f.source.Info().RedeliveryHorizon; got != 4*day {
			t.Errorf("without dead letters %v", got)
		}
		createQueue(t, f.client, "dead")
		_, err := f.client.SetQueueAttributes(t.Context(), &awssqs.SetQueueAttributesInput{QueueUrl: &f.url, Attributes: map[string]string{
			"MessageRetentionPeriod": "864000", "RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":5}`}})
		f.must(err)
		source, err := pawlsqs.Open(t.Context(), f.client, "q", pawlsqs.Config{})
		f.must(err)
		if got := source.Info().RedeliveryHorizon; got != 34*day {
			t.Errorf("with dead letters %v", got)
		}
	})
}

// T37: if the retention period is raised while a consumer runs, Info returns it within minutes. A
// failed call keeps the last answer, and between two calls SQS is not asked.
func TestT37_RedeliveryHorizonFollowsTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const day = 24 * time.Hour
		asked := 0
		down := false
		f := setup(t, sqstest.Faults{Fail: func(c sqstest.Call) *sqstest.Error {
			if c.Op != "GetQueueAttributes" {
				return nil
			}
			asked++
			if down {
				return &sqstest.Error{Shape: "AccessDenied", Message: "no"}
			}
			return nil
		}}, pawlsqs.Config{})
		_, err := f.client.SetQueueAttributes(t.Context(), &awssqs.SetQueueAttributesInput{QueueUrl: &f.url,
			Attributes: map[string]string{"MessageRetentionPeriod": "1209600"}})
		f.must(err)
		asked = 0
		for range 4 {
			time.Sleep(time.Minute)
			if got := f.source.Info().RedeliveryHorizon; got != 4*day || asked != 0 {
				t.Errorf("%v after %d questions", got, asked)
			}
		}
		down = true
		time.Sleep(2 * time.Minute)
		if got := f.source.Info().RedeliveryHorizon; got != 4*day || asked != 1 {
			t.Errorf("without an answer: %v after %d questions", got, asked)
		}
		down = false
		if got := f.source.Info().RedeliveryHorizon; got != 4*day || asked != 1 {
			t.Errorf("at once after a failure: %v after %d questions", got, asked)
		}
		time.Sleep(time.Minute)
		if got := f.source.Info().RedeliveryHorizon; got != 14*day || asked != 2 {
			t.Errorf("in the end: %v after %d questions", got, asked)
		}
	})
}

// T42: SQS counts each receive, also of a process that died or whose response was lost. The
// dead-letter policy uses that count.
func TestT42_EveryReceiveIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{LoseReceive: func(c sqstest.Call, _ int) bool { return c.N == 2 }}, pawlsqs.Config{})
		f.send("a")
		// a process that dies: no process holds it
		_, err := f.client.ReceiveMessage(t.Context(), f.poll())
		f.must(err)
		time.Sleep(31 * time.Second)
		if _, err := f.source.Receive(t.Context(), 10); err == nil {
			t.Fatal("the answer arrived")
		}
		time.Sleep(31 * time.Second)
		d := f.one()
		if d.Receives != 3 {
			t.Errorf("received %d times, want 3", d.Receives)
		}
		f.ack(d)
	})
}

// T5 and T12, the transport's part: a delivery released because another process handles it is not
// deleted. It is hidden no longer than asked. Only a receipt deletes.
func TestT5_T12_GivenBackIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{Duplicate: func(a sqstest.Arrival) bool { return a.Receives == 1 }}, pawlsqs.Config{})
		f.send("a")
		held, rival := f.one(), f.one()
		f.must(f.source.Release(t.Context(), 2*time.Second, rival))
		start := time.Now()
		again := f.one()
		if took := time.Since(start); took != 2*time.Second || again.Key != held.Key {
			t.Errorf("came again after %v: %+v", took, again)
		}
		f.must(f.source.Release(t.Context(), 0, held))
		f.must(f.source.Release(t.Context(), 0, again))
		synctest.Wait()
		if got := f.server.Stats("q"); got.Ready != 2 || got.Deleted != 0 {
			t.Errorf("server %+v", got)
		}
	})
}
