package sqs

import (
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
)

// arrival is our Delivery.Handle: what one receive of one message needs to be settled.
type arrival struct {
	receipt string
	polled  time.Time // start of the poll: never later than the receive, from which SQS counts twelve hours
}

// BinarySuffix marks attributes of type Binary in Delivery.Attributes: a Binary attribute "photo" arrives as
// "photo;base64", in standard base64. No attribute of SQS can have such a name of its own.
const BinarySuffix = ";base64"

// Receive makes one call of ReceiveMessage: it waits at most Config.Wait for the first message and returns at most
// max deliveries, never more than [MaxBatch] whatever max says. It may return none. From here each delivery is kept
// invisible until Ack or Release, also if the caller forgets it, for at most twelve hours.
//
// The call is not repeated on an error: poll again, after a pause. A poll whose answer was lost may have put messages
// in flight, and they return after Visibility.
//
// When ctx ends during the poll, the poll is not cut off: SQS would go on handing messages to it, and they would be
// hidden until their timeout (trap T76). Receive waits for its answer, makes what arrived visible again and returns
// the context's error. So a drain may take as long as Wait; if the endpoint hangs, up to twenty seconds more.
func (s *Source) Receive(ctx context.Context, max int) ([]pawl.Delivery, error) {
	if max < 1 {
		return nil, badArgument("sqs.receive", "max is %d, must be at least 1", max)
	}
	if err := ctx.Err(); err != nil {
		return nil, wrap("sqs.receive", s.url, err)
	}
	polled := time.Now()
	messages, err := s.poll(context.WithoutCancel(ctx), min(max, MaxBatch))
	if stopped := ctx.Err(); stopped != nil {
		return nil, wrap("sqs.receive", s.url, errors.Join(stopped, s.giveBack(ctx, messages)))
	}
	if err != nil {
		return nil, wrap("sqs.receive", s.url, err)
	}
	deliveries := make([]pawl.Delivery, len(messages))
	for i, m := range messages {
		held := &arrival{receipt: aws.ToString(m.ReceiptHandle), polled: polled}
		s.heart.hold(held)
		deliveries[i] = s.delivery(m, held)
	}
	return deliveries, nil
}

func (s *Source) poll(ctx context.Context, max int) ([]types.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.longestPoll()+pollSlack)
	defer cancel()
	in := &awssqs.ReceiveMessageInput{
		QueueUrl:              &s.url,
		MaxNumberOfMessages:   int32(max),
		VisibilityTimeout:     wholeSeconds(s.config.Visibility), // never 0, which the SDK would not send
		WaitTimeSeconds:       wholeSeconds(s.config.Wait),       // 0 for ShortPoll: not sent, the queue decides
		MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{
			types.MessageSystemAttributeNameApproximateReceiveCount, types.MessageSystemAttributeNameSentTimestamp,
		},
	}
	out, err := s.client.ReceiveMessage(ctx, in, once)
	if err != nil {
		s.counters.pollErrors.Add(1)
		return nil, err
	}
	s.counters.polls.Add(1)
	s.counters.received.Add(int64(len(out.Messages)))
	if len(out.Messages) == 0 {
		s.counters.emptyPolls.Add(1)
	}
	return out.Messages, nil
}

// once switches the SDK's own retries off: they would start new polls after the caller asked to stop. Nothing of the one
// answer may be lost: see ownBody.
func once(o *awssqs.Options) {
	o.Retryer = aws.NopRetryer{}
	o.HTTPClient = ownBody{o.HTTPClient}
}

// giveBack makes messages visible at once that arrived too late to be handled.
func (s *Source) giveBack(ctx context.Context, messages []types.Message) error {
	if len(messages) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	entries := make([]entry, len(messages))
	for i, m := range messages {
		entries[i].receipt = aws.ToString(m.ReceiptHandle)
	}
	return s.release(ctx, entries)
}

func (s *Source) delivery(m types.Message, held *arrival) pawl.Delivery {
	receives, _ := strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	return pawl.Delivery{
		Key:        s.config.Key.KeyOf(m),
		MessageID:  aws.ToString(m.MessageId),
		Body:       []byte(aws.ToString(m.Body)),
		Attributes: attributes(m.MessageAttributes),
		Receives:   receives,
		SentAt:     sentAt(m.Attributes[string(types.MessageSystemAttributeNameSentTimestamp)]),
		Handle:     held,
	}
}

// sentAt reads milliseconds since 1970; zero if there are none.
func sentAt(millis string) time.Time {
	n, err := strconv.ParseInt(millis, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

func attributes(from map[string]types.MessageAttributeValue) map[string]string {
	to := make(map[string]string, len(from))
	for name, a := range from {
		if strings.HasPrefix(aws.ToString(a.DataType), "Binary") {
			to[name+BinarySuffix] = base64.StdEncoding.EncodeToString(a.BinaryValue)
		} else {
			to[name] = aws.ToString(a.StringValue)
		}
	}
	return to
}
