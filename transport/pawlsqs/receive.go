package pawlsqs

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// arrival is the Delivery.Handle of this package: one receive of one message.
type arrival struct {
	receipt string
	// start of the poll, so never later than the receive from which SQS counts twelve hours
	polled time.Time
}

func handleOf(d pawl.Delivery) *arrival { return d.Handle.(*arrival) }

// attemptIDs holds the ReceiveRequestAttemptIds of a FIFO queue's polls. The id of an unanswered
// poll is used again by the next one. SQS then returns the messages of the lost response instead of
// blocking their groups until the timeout. Concurrent polls never share an id, or both would get
// the same messages.
type attemptIDs struct {
	mu         sync.Mutex
	unanswered []string
}

func (a *attemptIDs) name() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := len(a.unanswered) - 1
	if last < 0 {
		return rand.Text()
	}
	name := a.unanswered[last]
	a.unanswered = a.unanswered[:last]
	return name
}

func (a *attemptIDs) lost(name string) {
	a.mu.Lock()
	a.unanswered = append(a.unanswered, name)
	a.mu.Unlock()
}

// BinarySuffix marks attributes of type Binary in Delivery.Attributes. A Binary attribute "photo"
// arrives as "photo;base64", in standard base64. SQS allows no such attribute name, so the two
// cannot collide.
const BinarySuffix = adapter.BinarySuffix

// Receive makes one call of ReceiveMessage. It waits at most Config.Wait for the first message and
// returns at most max deliveries, never more than ten. It may return none. Each delivery is kept
// invisible until Ack or Release, for at most twelve hours, even if the caller forgets it.
//
// A FIFO queue may return several deliveries of one message group, in order; the group is their
// OrderingKey. SQS hands out no more of a group while one of its messages is in flight. Handle them
// in that order. If you release one, release those behind it too, as package consumer does.
//
// Receive does not retry an error; call it again after a pause. After an error that needs an
// operator (credentials, permissions, a missing queue) the next poll waits 5 s to a minute by
// itself; after a short poll that found nothing it waits 50 ms to 2 s. If the response of a poll
// was lost, its messages may be in flight. On a standard queue they return after Visibility. On a
// FIFO queue the next poll asks for the same ones (ReceiveRequestAttemptId).
//
// If ctx ends during the poll, the poll is not cut off: SQS would go on handing messages to it,
// hidden until their timeout (T76 in docs/reference/traps.md). Receive waits for the response,
// makes its messages visible again and returns the context's error. A drain may therefore take
// Wait, plus ten seconds if the endpoint hangs. Config.StopWait shortens that.
func (s *Source) Receive(ctx context.Context, max int) ([]pawl.Delivery, error) {
	if max < 1 {
		return nil, adapter.BadArgument("sqs.receive", "max is %d, must be at least 1", max)
	}
	if err := ctx.Err(); err != nil {
		return nil, wrap("sqs.receive", s.url, err)
	}
	ds, err := s.pollOnce(ctx, min(max, maxBatch))
	if stopped := ctx.Err(); stopped != nil {
		late := make([]*arrival, len(ds))
		for i, d := range ds {
			late[i] = handleOf(d)
		}
		return nil, wrap("sqs.receive", s.url, errors.Join(stopped, s.giveBack(ctx, late)))
	}
	if err != nil {
		return nil, wrap("sqs.receive", s.url, err)
	}
	return ds, nil
}

// giveBack makes messages visible at once, so that another process can receive them.
func (s *Source) giveBack(ctx context.Context, as []*arrival) error {
	if len(as) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return s.release(ctx, as, func(*arrival) time.Duration { return 0 })
}

// pollOnce polls once and holds the messages received. If ctx ends, the running poll may continue
// for StopWait.
func (s *Source) pollOnce(ctx context.Context, most int) ([]pawl.Delivery, error) {
	s.pace.Await(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	polled := time.Now()
	messages, err := s.poll(ctx, most)
	s.pace.Polled(err, needsOperator, len(messages) == 0 && s.config.Wait == ShortPoll)
	if err != nil {
		s.counters.pollErrors.Add(1)
		return nil, err
	}
	s.counters.polls.Add(1)
	s.counters.received.Add(int64(len(messages)))
	if len(messages) == 0 {
		s.counters.emptyPolls.Add(1)
	}
	ds := make([]pawl.Delivery, len(messages))
	for i, m := range messages {
		ds[i] = s.delivery(m, polled)
		s.hold(handleOf(ds[i]))
	}
	s.report.Received(ctx, "sqs.receive", ds)
	return ds, nil
}

func (s *Source) poll(ctx context.Context, max int) ([]types.Message, error) {
	ctx, cancel := s.pollContext(ctx)
	defer cancel()
	in := &awssqs.ReceiveMessageInput{
		QueueUrl:            &s.url,
		MaxNumberOfMessages: int32(max),
		// never 0, which the SDK does not send
		VisibilityTimeout: wholeSeconds(s.config.Visibility),
		// 0 for ShortPoll is not sent: the queue's setting applies
		WaitTimeSeconds:       wholeSeconds(s.config.Wait),
		MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{
			types.MessageSystemAttributeNameApproximateReceiveCount, types.MessageSystemAttributeNameSentTimestamp,
			types.MessageSystemAttributeNameMessageGroupId, types.MessageSystemAttributeNameMessageDeduplicationId,
			types.MessageSystemAttributeNameDeadLetterQueueSourceArn,
		},
	}
	if s.fifo {
		in.ReceiveRequestAttemptId = aws.String(s.attempts.name())
	}
	out, err := s.client.ReceiveMessage(ctx, in, once)
	if err != nil {
		if s.fifo {
			s.attempts.lost(*in.ReceiveRequestAttemptId)
		}
		return nil, err
	}
	return out.Messages, nil
}

// pollContext ends at the poll's timeout, or StopWait after ctx if StopWait is set.
func (s *Source) pollContext(ctx context.Context) (context.Context, context.CancelFunc) {
	polling, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.longestPoll()+pollSlack)
	if s.config.StopWait == 0 {
		return polling, cancel
	}
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(s.config.StopWait)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-polling.Done():
		}
	})
	return polling, func() {
		stop()
		cancel()
	}
}

// once disables the SDK's retries, which would start new polls after the caller asked to stop. The
// single response must not be lost; see ownBody.
func once(o *awssqs.Options) {
	o.Retryer = aws.NopRetryer{}
	o.HTTPClient = ownBody{o.HTTPClient}
}

// delivery converts a message. If a function of the configuration panics, Fault holds the panic,
// and the other fields are filled as far as possible.
func (s *Source) delivery(m types.Message, polled time.Time) pawl.Delivery {
	var fault error
	if s.config.Unwrap != nil {
		var unwrapped types.Message
		if unwrapped, fault = callback.Get("Config.Unwrap", func() types.Message { return s.config.Unwrap(m) }); fault == nil {
			m = unwrapped
		}
	}
	m = decoded(m)
	system := func(name types.MessageSystemAttributeName) string { return m.Attributes[string(name)] }
	receives, _ := strconv.Atoi(system(types.MessageSystemAttributeNameApproximateReceiveCount))
	group := ""
	if s.fifo { // on a standard queue it has no order
		group = system(types.MessageSystemAttributeNameMessageGroupId)
	}
	key := ""
	if fault == nil {
		key, fault = callback.Get("Config.Key", func() string { return s.config.Key.KeyOf(m) })
	}
	return pawl.Delivery{
		Key:         key,
		Fault:       fault,
		MessageID:   aws.ToString(m.MessageId),
		Payload:     []byte(aws.ToString(m.Body)),
		Attributes:  attributes(m.MessageAttributes),
		Receives:    receives,
		SentAt:      sentAt(system(types.MessageSystemAttributeNameSentTimestamp)),
		OrderingKey: group,
		ProducedAt:  producedAt(m),
		Handle:      &arrival{receipt: aws.ToString(m.ReceiptHandle), polled: polled},
	}
}

// sentAt reads milliseconds since 1970. An unreadable value is the zero time.
func sentAt(millis string) time.Time {
	n, err := strconv.ParseInt(millis, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

// producedAt reads the time that a [Sender] wrote. A missing value is the zero time.
func producedAt(m types.Message) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, aws.ToString(m.MessageAttributes[ProducedAtAttribute].StringValue))
	return at
}

func attributes(from map[string]types.MessageAttributeValue) map[string]string {
	to := make(map[string]string, len(from))
	for name, a := range from {
		if strings.HasPrefix(aws.ToString(a.DataType), "Binary") {
			adapter.SetBinary(to, name, a.BinaryValue)
		} else {
			to[name] = aws.ToString(a.StringValue)
		}
	}
	return to
}
