package sqs

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
)

// A Source receives from one standard queue. Its methods may be called from many goroutines. It needs no closing: it
// has one goroutine of its own while it holds deliveries, and none otherwise.
type Source struct {
	client   API
	url      string
	config   Config
	heart    *heart
	counters counters
}

var _ pawl.Source = (*Source)(nil)

// Open finds the queue and checks that it can be reached. queue is a name, looked up with GetQueueUrl in the
// client's own account and region, or a full queue URL. The error says in one line what to do when the queue does
// not exist, the credentials fail, or nothing answers at the endpoint.
//
// FIFO queues are refused: their order and their deletes follow other rules, which this version does not keep.
func Open(ctx context.Context, client API, queue string, cfg Config) (*Source, error) {
	cfg, err := cfg.filled()
	if err != nil {
		return nil, err
	}
	if err := patientClient(client, cfg.longestPoll()); err != nil {
		return nil, err
	}
	url, err := resolve(ctx, "sqs.open", client, queue)
	if err != nil {
		return nil, err
	}
	s := &Source{client: client, url: url, config: cfg}
	s.heart = newHeart(cfg.Visibility, s.changeVisibility, &s.counters)
	return s, nil
}

// QueueURL is the address of the queue, as SQS gave it.
func (s *Source) QueueURL() string { return s.url }

// resolve turns a name into a URL, and checks a URL by asking for the queue behind it.
func resolve(ctx context.Context, op string, client Resolver, queue string) (string, error) {
	if queue == "" {
		return "", badArgument(op, "the queue has no name")
	}
	if strings.HasSuffix(queue, ".fifo") {
		return "", &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid,
			Err:  fmt.Errorf("%q is a FIFO queue, which this version does not support", queue),
			Hint: "use a standard queue"}
	}
	if !strings.Contains(queue, "://") {
		out, err := client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &queue})
		if err != nil {
			return "", wrap(op, queue, err)
		}
		return aws.ToString(out.QueueUrl), nil
	}
	_, err := client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &queue,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn}})
	if err != nil {
		return "", wrap(op, queue, err)
	}
	return queue, nil
}

// patientClient refuses an HTTP client that would hang up before a long poll is answered: SQS goes on handing
// messages to such a poll, and they are hidden until their timeout. It looks where it can; a client of another make
// is the caller's care.
func patientClient(client API, poll time.Duration) error {
	configured, ok := client.(interface{ Options() awssqs.Options })
	if !ok {
		return nil
	}
	var timeout time.Duration
	switch h := configured.Options().HTTPClient.(type) {
	case *http.Client:
		timeout = h.Timeout
	case interface{ GetTimeout() time.Duration }:
		timeout = h.GetTimeout()
	}
	if timeout == 0 || timeout > poll {
		return nil
	}
	return &pawl.Error{Op: "sqs.open", Code: pawl.CodeArgumentInvalid,
		Err:  fmt.Errorf("the HTTP client gives up after %v, a poll may take %v", timeout, poll),
		Hint: "raise the client's timeout above Wait, or lower Wait"}
}

// Stats count since Open, except Held.
type Stats struct {
	Polls       int64 // receive calls answered
	EmptyPolls  int64 // of them, those without a message
	PollErrors  int64 // receive calls that failed
	Received    int64 // messages received
	Acked       int64 // messages SQS says it deleted
	AckFailures int64 // messages it did not delete: they return and are absorbed
	Released    int64 // messages given back
	Extended    int64 // visibility timeouts extended
	LostHandles int64 // messages whose handle died or reached twelve hours while held, acked or released
	Held        int   // messages being kept invisible now
}

type counters struct {
	polls, emptyPolls, pollErrors, received, acked, ackFailures, released, extended, lostHandles atomic.Int64
}

// Stats returns the counts so far.
func (s *Source) Stats() Stats {
	c := &s.counters
	return Stats{
		Polls: c.polls.Load(), EmptyPolls: c.emptyPolls.Load(), PollErrors: c.pollErrors.Load(),
		Received: c.received.Load(), Acked: c.acked.Load(), AckFailures: c.ackFailures.Load(),
		Released: c.released.Load(), Extended: c.extended.Load(), LostHandles: c.lostHandles.Load(),
		Held: s.heart.count(),
	}
}
