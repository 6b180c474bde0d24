package sqstest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// The conformance suite has the checks that work from outside. These tests inspect the server or
// need an exact time.

// virtualFIFO is virtual with a FIFO queue.
func virtualFIFO(t *testing.T, o sqstest.Options, test func(f *fixture)) {
	t.Helper()
	virtual(t, o, nil, func(f *fixture) {
		f.url = f.create("q.fifo", map[string]string{"FifoQueue": "true"})
		test(f)
	})
}

// sendIn sends numbered messages of a group, such as "g1".
func (f *fixture) sendIn(group string, numbers ...int) {
	f.Helper()
	for _, n := range numbers {
		f.must(f.trySendIn(group, fmt.Sprint(group, n)))
	}
}

func (f *fixture) trySendIn(group, body string) error {
	_, err := f.client.SendMessage(f.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: &body, MessageGroupId: &group,
		MessageDeduplicationId: &body}, once)
	return err
}

func (f *fixture) wantBodies(want string) []types.Message {
	f.Helper()
	ms := f.receive(0)
	all := make([]string, len(ms))
	for i, m := range ms {
		all[i] = *m.Body
	}
	if got := strings.Join(all, " "); got != want {
		f.Fatalf("received %q, want %q", got, want)
	}
	return ms
}

// A receive takes as many messages of one group as it can before it takes the next group.
func TestFIFO_FillsFromOneGroupFirst(t *testing.T) {
	virtualFIFO(t, sqstest.Options{}, func(f *fixture) {
		f.sendIn("a", 1)
		f.sendIn("b", 1, 2)
		f.sendIn("a", 2)
		f.wantBodies("a1 a2 b1 b2")
	})
}

func TestFIFO_ReorderPicksGroups(t *testing.T) {
	last := func(_ string, _ int64, n int) int { return n - 1 }
	virtualFIFO(t, faulty(sqstest.Faults{Reorder: last, Duplicate: func(sqstest.Arrival) bool { return true }}), func(f *fixture) {
		f.sendIn("a", 1, 2)
		f.sendIn("b", 1, 2)
		f.wantBodies("b1 b2 a1 a2")
		if got := f.server.Stats("q.fifo"); got.Duplicated != 0 || got.Ready != 0 {
			f.Fatalf("stats %+v", got)
		}
	})
}

// A message that its queue delays is not overtaken.
func TestFIFO_DelayKeepsTheOrder(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		f.url = f.create("q.fifo", map[string]string{"FifoQueue": "true", "DelaySeconds": "10"})
		f.sendIn("a", 1)
		time.Sleep(5 * time.Second)
		f.sendIn("a", 2)
		time.Sleep(5 * time.Second)
		f.must(f.delete(f.wantBodies("a1")[0]))
		f.wantBodies("")
		time.Sleep(5 * time.Second)
		f.wantBodies("a2")
	})
}

// A long poll wakes when a group becomes free by a delete or an expiry.
func TestFIFO_PollWakesWhenAGroupOpens(t *testing.T) {
	virtualFIFO(t, sqstest.Options{}, func(f *fixture) {
		f.sendIn("a", 1)
		a1 := f.wantBodies("a1")[0]
		f.sendIn("a", 2)
		start := time.Now()
		deleted := f.after(3*time.Second, func() error { return f.delete(a1) })
		f.one(20 * time.Second)
		f.took(start, 3*time.Second)
		deleted()
		time.Sleep(20 * time.Second)
		f.one(20 * time.Second)
		f.took(start, 33*time.Second) // after 30 s of visibility
	})
}

// Over the limit a FIFO queue returns no messages and no error.
func TestFIFO_OverTheLimitIsSilent(t *testing.T) {
	virtualFIFO(t, sqstest.Options{InFlightLimit: 2}, func(f *fixture) {
		f.sendIn("a", 1, 2, 3)
		f.sendIn("b", 1)
		ms := f.wantBodies("a1 a2")
		f.wantBodies("")
		f.must(f.delete(ms[0]))
		f.wantBodies("b1")
	})
}

func TestFIFO_Quota(t *testing.T) {
	virtualFIFO(t, sqstest.Options{FIFOQuota: 3}, func(f *fixture) {
		for i := range 3 {
			f.sendIn("a", i)
		}
		f.wantCode(f.trySendIn("a", "a3"), "RequestThrottled")
		f.receive(0) // a different action
		time.Sleep(time.Second)
		f.sendIn("a", 3)
		f.url = f.create("fast.fifo", map[string]string{"FifoQueue": "true", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"})
		for i := range 10 {
			f.sendIn("a", i)
		}
	})
}

// An attempt is repeated for five minutes, unless one of its messages was changed, deleted or
// received again.
func TestFIFO_AttemptEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f *fixture, m types.Message){
		"changed": func(f *fixture, m types.Message) { f.must(f.hide(m, 600)) },
		"deleted": func(f *fixture, m types.Message) { f.must(f.delete(m)) },
		"old":     func(_ *fixture, _ types.Message) { time.Sleep(5 * time.Minute) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := direct(t, sqstest.Options{}, nil)
			f.url = f.create("q.fifo", map[string]string{"FifoQueue": "true", "VisibilityTimeout": "600"})
			f.sendIn("a", 1, 2)
			again := func() []types.Message {
				in := poll(f.url, 0)
				in.ReceiveRequestAttemptId = aws.String("attempt")
				out, err := f.client.ReceiveMessage(t.Context(), in)
				f.must(err)
				return out.Messages
			}
			first := again()
			if len(first) != 2 || len(again()) != 2 {
				t.Fatalf("%s: the attempt was not answered again", name)
			}
			end(f, first[0])
			if ms := again(); len(ms) != 0 {
				t.Errorf("%s: answered with %d messages", name, len(ms))
			}
		})
	}
}

// A move task keeps its rate, can be cancelled, and is the only one on its queue.
func TestMoveTask_RateAndCancel(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		f.create("source", map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:q","maxReceiveCount":2}`})
		f.create("other", nil)
		for range 10 {
			f.send("x")
		}
		arn := aws.String("arn:aws:sqs:us-east-1:000000000000:q")
		start := func(destination string, rate *int32) (*sqs.StartMessageMoveTaskOutput, error) {
			in := &sqs.StartMessageMoveTaskInput{SourceArn: arn, MaxNumberOfMessagesPerSecond: rate}
			if destination != "" {
				in.DestinationArn = aws.String("arn:aws:sqs:us-east-1:000000000000:" + destination)
			}
			return f.client.StartMessageMoveTask(f.Context(), in)
		}
		task, err := start("other", aws.Int32(2))
		f.must(err)
		_, err = start("other", nil)
		f.wantCode(err, "AWS.SimpleQueueService.UnsupportedOperation")
		time.Sleep(2*time.Second + 100*time.Millisecond)
		cancelled, err := f.client.CancelMessageMoveTask(f.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: task.TaskHandle})
		f.must(err)
		synctest.Wait()
		list, err := f.client.ListMessageMoveTasks(f.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: arn})
		f.must(err)
		if got := f.server.Stats("other").Ready; got != 4 || cancelled.ApproximateNumberOfMessagesMoved != 4 ||
			len(list.Results) != 1 || *list.Results[0].Status != "CANCELLED" || list.Results[0].TaskHandle != nil || list.Results[0].ApproximateNumberOfMessagesMoved != 4 {
			f.Fatalf("%d moved, %+v", got, list.Results)
		}
		if got := f.server.Stats("q"); got.Redriven != 4 || got.Ready != 6 {
			f.Fatalf("stats %+v", got)
		}
		_, err = f.client.CancelMessageMoveTask(f.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: task.TaskHandle})
		f.wantCode(err, "ResourceNotFoundException")
		for _, bad := range []string{"none", "q"} {
			if _, err := start(bad, nil); err == nil {
				f.Errorf("moved to %s", bad)
			}
		}
		_, err = f.client.StartMessageMoveTask(f.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: aws.String("arn:aws:sqs:us-east-1:000000000000:other")})
		f.wantCode(err, "InvalidParameterValue")
	})
}
