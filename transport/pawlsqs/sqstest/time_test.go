package sqstest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// virtual runs a test on virtual time, where hours pass at once and exactly.
func virtual(t *testing.T, o sqstest.Options, attributes map[string]string, test func(f *fixture)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(direct(t, o, attributes)) })
}

// took checks a duration, to the second.
func (f *fixture) took(start time.Time, want time.Duration) {
	f.Helper()
	if got := time.Since(start); got.Round(time.Second) != want {
		f.Fatalf("took %v, want %v", got, want)
	}
}

func TestLongPoll_WaitsAndComesBackEmpty(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		start := time.Now()
		f.none(20 * time.Second)
		f.took(start, 20*time.Second)
		f.none(0)
		f.took(start, 20*time.Second)
	})
}

func TestLongPoll_WakesOnSend(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		start := time.Now()
		sent := f.after(3*time.Second, func() error {
			_, err := f.trySend("a")
			return err
		})
		f.one(20 * time.Second)
		f.took(start, 3*time.Second)
		sent()
	})
}

func TestLongPoll_WakesOnExpiry(t *testing.T) {
	virtual(t, sqstest.Options{}, map[string]string{"VisibilityTimeout": "10"}, func(f *fixture) {
		f.send("a")
		f.one(0)
		start := time.Now()
		f.one(20 * time.Second)
		f.took(start, 10*time.Second)
	})
}

func TestLongPoll_WakesOnDelay(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		_, err := f.client.SendMessage(f.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("a"), DelaySeconds: 7})
		f.must(err)
		f.none(0)
		start := time.Now()
		f.one(20 * time.Second)
		f.took(start, 7*time.Second)
	})
}

func TestLongPoll_QueueDefault(t *testing.T) {
	virtual(t, sqstest.Options{}, map[string]string{"ReceiveMessageWaitTimeSeconds": "5"}, func(f *fixture) {
		start := time.Now()
		f.none(0) // the SDK cannot send a zero
		f.took(start, 5*time.Second)
	})
}

// If a poll's client disconnects at the instant of its wake-up, the next poll gets the wake-up. No
// poll waits while a message is ready.
func TestLongPoll_WakeUpIsNotLostWithItsPoll(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		for range 200 {
			_, err := f.client.SendMessage(f.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("a"), DelaySeconds: 1})
			f.must(err)
			leaving, cancel := context.WithTimeout(f.Context(), time.Second)
			go f.client.ReceiveMessage(leaving, poll(f.url, 20*time.Second))
			synctest.Wait()
			staying, stop := context.WithTimeout(f.Context(), 10*time.Second)
			go f.client.ReceiveMessage(staying, poll(f.url, 20*time.Second))
			time.Sleep(1500 * time.Millisecond)
			if got := f.server.Stats("q"); got.Ready != 0 {
				f.Fatalf("ready beside a waiting poll: %+v", got)
			}
			stop()
			cancel()
			time.Sleep(time.Minute)
			for _, m := range f.receive(0) {
				f.must(f.delete(m))
			}
		}
	})
}

func TestDelay_QueueDefault(t *testing.T) {
	virtual(t, sqstest.Options{}, map[string]string{"DelaySeconds": "60"}, func(f *fixture) {
		f.send("a")
		time.Sleep(59 * time.Second)
		f.none(0)
		time.Sleep(2 * time.Second)
		f.one(0)
	})
}

func TestVisibility_ExpiryRedelivers(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		id := f.send("a")
		first := f.one(0)
		time.Sleep(29 * time.Second)
		f.none(0)
		time.Sleep(2 * time.Second)
		second := f.one(0)
		if *second.MessageId != id || second.Attributes["ApproximateReceiveCount"] != "2" ||
			*second.ReceiptHandle == *first.ReceiptHandle ||
			second.Attributes["ApproximateFirstReceiveTimestamp"] != first.Attributes["ApproximateFirstReceiveTimestamp"] {
			f.Fatalf("got %+v", second)
		}
	})
}

func TestVisibility_OfTheReceive(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		f.send("a")
		in := poll(f.url, 0)
		in.VisibilityTimeout = 90
		_, err := f.client.ReceiveMessage(f.Context(), in)
		f.must(err)
		time.Sleep(89 * time.Second)
		f.none(0)
		time.Sleep(2 * time.Second)
		f.one(0)
	})
}

func TestVisibility_ChangeAppliesFromNowAndOnce(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		f.send("a")
		m := f.one(0)
		time.Sleep(20 * time.Second)
		f.must(f.hide(m, 60))
		time.Sleep(59 * time.Second)
		f.none(0)
		time.Sleep(2 * time.Second)
		m = f.one(0)
		f.must(f.hide(m, 0))
		f.one(0)
		time.Sleep(31 * time.Second) // the queue's own timeout applies again
		f.one(0)
	})
}

func TestVisibility_ChangeRefusedWhenNotInFlight(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		f.send("a")
		m := f.one(0)
		time.Sleep(31 * time.Second)
		f.wantCode(f.hide(m, 60), "InvalidParameterValue")
		f.one(0)
		f.wantCode(f.hide(m, 60), "InvalidParameterValue") // superseded
	})
}

// A timeout beyond the rest of twelve hours is refused, not shortened.
func TestVisibility_TwelveHoursFromTheReceive(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		f.send("a")
		start := time.Now()
		m := f.one(0)
		f.wantCode(f.hide(m, 43201), "InvalidParameterValue")
		f.must(f.hide(m, 43200))
		time.Sleep(11*time.Hour + 59*time.Minute)
		f.wantCode(f.hide(m, 61), "InvalidParameterValue")
		f.must(f.hide(m, 60))
		f.none(20 * time.Second)
		f.none(20 * time.Second)
		f.one(20 * time.Second)
		f.took(start, 12*time.Hour)
	})
}

func TestHandle_DeadAfterTwelveHours(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		f.send("a")
		m := f.one(0)
		time.Sleep(12*time.Hour + time.Second)
		f.wantCode(f.delete(m), "InvalidParameterValue")
	})
}

func TestDelete_AfterExpiryBeforeRedelivery(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		f.send("a")
		m := f.one(0)
		time.Sleep(time.Minute)
		f.must(f.delete(m))
		f.none(0)
		if got := f.server.Stats("q"); got.Deleted != 1 {
			f.Fatalf("stats %+v", got)
		}
	})
}

func TestDelete_SupersededHandleIsOKAndKeepsTheMessage(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		f.send("a")
		first := f.one(0)
		time.Sleep(31 * time.Second)
		f.one(0)
		f.must(f.delete(first))
		time.Sleep(31 * time.Second)
		f.must(f.delete(f.one(0)))
		time.Sleep(time.Minute)
		f.none(0)
	})
}

func TestRedrive_AfterMaxReceives(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		dead := f.create("dead", nil)
		policy := `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":"2"}`
		_, err := f.client.SetQueueAttributes(f.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &f.url,
			Attributes: map[string]string{"RedrivePolicy": policy}})
		f.must(err)
		id := f.send("poison")
		sent := f.one(0).Attributes["SentTimestamp"]
		time.Sleep(31 * time.Second)
		f.one(0)
		time.Sleep(31 * time.Second)
		f.none(0) // this receive moved it
		m := f.oneFrom(dead, 0)
		if *m.MessageId != id || *m.Body != "poison" || m.Attributes["ApproximateReceiveCount"] != "3" ||
			m.Attributes["SentTimestamp"] != sent ||
			m.Attributes["DeadLetterQueueSourceArn"] != "arn:aws:sqs:us-east-1:000000000000:q" {
			f.Fatalf("got %+v", m)
		}
		out, err := f.client.ListDeadLetterSourceQueues(f.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: &dead})
		f.must(err)
		if len(out.QueueUrls) != 1 || out.QueueUrls[0] != f.url {
			f.Fatalf("sources %v", out.QueueUrls)
		}
	})
}

func TestRetention_DropsWhatIsTooOld(t *testing.T) {
	virtual(t, sqstest.Options{}, map[string]string{"MessageRetentionPeriod": "60"}, func(f *fixture) {
		f.send("a")
		time.Sleep(61 * time.Second)
		f.none(0)
		if got := f.server.Stats("q"); got.TooOld != 1 || got.Ready != 0 {
			f.Fatalf("stats %+v", got)
		}
	})
}

func TestCounts_ByPlace(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		for range 3 {
			f.send("a")
		}
		_, err := f.client.SendMessage(f.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("a"), DelaySeconds: 900})
		f.must(err)
		_, err = f.client.ReceiveMessage(f.Context(), &sqs.ReceiveMessageInput{QueueUrl: &f.url, MaxNumberOfMessages: 2})
		f.must(err)
		f.counts("1 2 1")
		time.Sleep(901 * time.Second)
		f.counts("4 0 0")
	})
}

// counts checks the numbers ready, in flight and delayed.
func (f *fixture) counts(want string) {
	f.Helper()
	out, err := f.client.GetQueueAttributes(f.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &f.url,
		AttributeNames: []types.QueueAttributeName{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible",
			"ApproximateNumberOfMessagesDelayed"}})
	f.must(err)
	a := out.Attributes
	if got := fmt.Sprint(a["ApproximateNumberOfMessages"], " ", a["ApproximateNumberOfMessagesNotVisible"], " ",
		a["ApproximateNumberOfMessagesDelayed"]); got != want {
		f.Fatalf("counts %s, want %s", got, want)
	}
}

func TestPurge_TakesEverythingOnceAMinute(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		f.send("a")
		f.send("b")
		f.takeOne()
		purge := func() error {
			_, err := f.client.PurgeQueue(f.Context(), &sqs.PurgeQueueInput{QueueUrl: &f.url})
			return err
		}
		f.must(purge())
		f.counts("0 0 0")
		f.wantCode(purge(), "AWS.SimpleQueueService.PurgeQueueInProgress")
		time.Sleep(61 * time.Second)
		f.none(0)
		f.must(purge())
	})
}

// takeOne takes one of several messages, so that some are in flight and some are not.
func (f *fixture) takeOne() {
	f.Helper()
	out, err := f.client.ReceiveMessage(f.Context(), &sqs.ReceiveMessageInput{QueueUrl: &f.url})
	f.must(err)
	if len(out.Messages) != 1 {
		f.Fatalf("received %d", len(out.Messages))
	}
}

func TestDeleteQueue_EndsPollsAndKeepsTheNameForAMinute(t *testing.T) {
	virtual(t, sqstest.Options{}, nil, func(f *fixture) {
		start := time.Now()
		deleted := f.after(2*time.Second, func() error {
			_, err := f.client.DeleteQueue(f.Context(), &sqs.DeleteQueueInput{QueueUrl: &f.url})
			return err
		})
		_, err := f.client.ReceiveMessage(f.Context(), poll(f.url, 20*time.Second))
		f.wantCode(err, "AWS.SimpleQueueService.NonExistentQueue")
		f.took(start, 2*time.Second)
		deleted()
		_, err = f.client.CreateQueue(f.Context(), &sqs.CreateQueueInput{QueueName: aws.String("q")})
		f.wantCode(err, "AWS.SimpleQueueService.QueueDeletedRecently")
		time.Sleep(time.Minute)
		f.create("q", nil)
	})
}
