package pawlsqs

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
	"github.com/pawl-go/pawl/transport/internal/heart"
)

// A Source receives from one queue, standard or FIFO. Its methods may be called from many
// goroutines. It needs no Close: it runs one goroutine while it holds deliveries, and none
// otherwise.
type Source struct {
	client   API
	url      string
	config   Config
	heart    *heart.Heart[string]
	fifo     bool
	attempts attemptIDs // for FIFO queues only
	horizon  adapter.Horizon
	pace     adapter.Pacer
	report   adapter.Reporter
	counters counters
}

var _ pawl.Source = (*Source)(nil)

// Open finds the queue and checks that it can be reached. queue is a full queue URL, or a name,
// which GetQueueUrl looks up in the client's account and region. If the queue does not exist, the
// credentials fail or the endpoint does not respond, the error says in one line what to do.
//
// A name that ends in .fifo is a FIFO queue. The MessageGroupId of its messages is their
// OrderingKey; see [Source.Receive]. On a standard queue the MessageGroupId is ignored.
func Open(ctx context.Context, client API, queue string, cfg Config) (*Source, error) {
	cfg, err := cfg.filled()
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, adapter.BadArgument("sqs.open", "the client is missing")
	}
	if err := patientClient(client, cfg.longestPoll()); err != nil {
		return nil, err
	}
	url, err := resolve(ctx, "sqs.open", client, queue)
	if err != nil {
		return nil, err
	}
	s := &Source{client: client, url: url, config: cfg, fifo: isFIFO(url), report: adapter.Reporter{Hooks: cfg.Hooks}}
	_, s.report.Scope = brokerOf(url)
	s.horizon.Timeout = callTimeout
	s.horizon.Ask = func(ctx context.Context) (time.Duration, error) { return redeliveryHorizon(ctx, client, url) }
	if err := s.horizon.Learn(ctx); err != nil {
		return nil, wrap("sqs.open", queue, err)
	}
	s.heart = newHeart(cfg.Visibility, s.changeVisibility, &s.counters, func(n int) { s.lost(ctx, "sqs.heartbeat", n) })
	return s, nil
}

func isFIFO(queue string) bool { return strings.HasSuffix(queue, ".fifo") }

// QueueURL is the URL of the queue.
func (s *Source) QueueURL() string { return s.url }

// Broker returns "aws_sqs" and the name of the queue, for traces.
func (s *Source) Broker() (system, destination string) { return brokerOf(s.url) }

// Broker returns "aws_sqs" and the name of the queue, for traces.
func (s *Sink) Broker() (system, destination string) { return brokerOf(s.url) }

func brokerOf(url string) (system, destination string) {
	return "aws_sqs", url[strings.LastIndexByte(url, '/')+1:]
}

// Info returns how long SQS may redeliver a message of this queue without another send. That is the
// queue's retention period. With a dead-letter queue it is that period twice plus fourteen days,
// the longest retention there, because a redrive starts the period again. Resends by a producer are
// not included.
//
// Open asks SQS for the period. Info asks again if the answer is older than five minutes, because
// the queue's settings may change while a consumer runs. The call takes ten seconds at most. If it
// fails, the last answer holds, and Info asks again after a minute.
func (s *Source) Info() pawl.SourceInfo {
	return pawl.SourceInfo{RedeliveryHorizon: s.horizon.Get()}
}

func redeliveryHorizon(ctx context.Context, client Resolver, url string) (time.Duration, error) {
	const retention, redrive = types.QueueAttributeNameMessageRetentionPeriod, types.QueueAttributeNameRedrivePolicy
	out, err := client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &url,
		AttributeNames: []types.QueueAttributeName{retention, redrive}})
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.Atoi(out.Attributes[string(retention)])
	period := time.Duration(seconds) * time.Second
	if err != nil {
		period = maxRetention // missing or unreadable: assume the longest
	}
	if out.Attributes[string(redrive)] == "" {
		return period, nil
	}
	return period + maxRetention + period, nil
}

// resolve turns a name into a URL. It checks a URL by asking SQS for that queue.
func resolve(ctx context.Context, op string, client Resolver, queue string) (string, error) {
	if client == nil {
		return "", adapter.BadArgument(op, "the client is missing")
	}
	if queue == "" {
		return "", adapter.BadArgument(op, "the name of the queue is empty")
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

// patientClient refuses an HTTP client whose timeout is shorter than a long poll. SQS goes on
// handing messages to a poll that was abandoned, and they stay hidden until their timeout. It
// recognises net/http's client and clients with GetTimeout; others are not checked.
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

// Stats counts since Open, except Held, which is the present number.
type Stats struct {
	Polls       int64 // successful receive calls
	EmptyPolls  int64 // of those, calls that returned no message
	PollErrors  int64 // failed receive calls
	Received    int64 // messages received
	Acked       int64 // messages that SQS confirmed as deleted
	AckFailures int64 // messages not deleted: they return and are absorbed
	Released    int64 // messages made visible again
	Extended    int64 // visibility timeouts extended
	// LostHandles counts messages whose handle expired or reached twelve hours while held, acked or
	// released.
	LostHandles int64
	Held        int // messages kept invisible now
}

func (s *Source) lost(ctx context.Context, op string, n int) {
	s.counters.lostHandles.Add(int64(n))
	s.report.Count(ctx, pawl.EventHandleLost, op, n)
}

// A Backlog is the number of messages in a queue, by SQS's approximate counts. Scale consumers by
// it.
type Backlog struct {
	Visible  int // ready to be received
	InFlight int // received, and neither deleted nor visible again
	Delayed  int // sent with a delay that has not passed
}

// Backlog asks SQS for the counts. They lag by up to a minute (GetQueueAttributes).
func (s *Source) Backlog(ctx context.Context) (Backlog, error) {
	const visible, inFlight, delayed = types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible, types.QueueAttributeNameApproximateNumberOfMessagesDelayed
	out, err := s.client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &s.url,
		AttributeNames: []types.QueueAttributeName{visible, inFlight, delayed}})
	if err != nil {
		return Backlog{}, wrap("sqs.backlog", s.url, err)
	}
	count := func(name types.QueueAttributeName) int {
		n, _ := strconv.Atoi(out.Attributes[string(name)]) // absent: 0
		return n
	}
	return Backlog{Visible: count(visible), InFlight: count(inFlight), Delayed: count(delayed)}, nil
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
		Held: s.heart.Count(),
	}
}
