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

// A Source receives from one queue, standard or FIFO. Its methods may be called from many goroutines. It needs no closing:
// it has one goroutine of its own while it holds deliveries, and none otherwise.
type Source struct {
	client   API
	url      string
	config   Config
	heart    *heart.Heart[string]
	fifo     bool
	attempts attemptIDs // of a FIFO queue
	horizon  adapter.Horizon
	pace     adapter.Pacer
	counters counters
}

var _ pawl.Source = (*Source)(nil)

// Open finds the queue and checks that it can be reached. queue is a name, looked up with GetQueueUrl in the
// client's own account and region, or a full queue URL. The error says in one line what to do when the queue does
// not exist, the credentials fail, or nothing answers at the endpoint.
//
// A name that ends in .fifo is a FIFO queue: the MessageGroupId of a message is its OrderingKey; see [Source.Receive]. In a standard
// queue it is a tenant's label and changes nothing.
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
	s := &Source{client: client, url: url, config: cfg, fifo: isFIFO(url)}
	s.horizon.Timeout = callTimeout
	s.horizon.Ask = func(ctx context.Context) (time.Duration, error) { return redeliveryHorizon(ctx, client, url) }
	if err := s.horizon.Learn(ctx); err != nil {
		return nil, wrap("sqs.open", queue, err)
	}
	s.heart = newHeart(cfg.Visibility, s.changeVisibility, &s.counters, func(n int) { s.lost(ctx, "sqs.heartbeat", n) })
	return s, nil
}

func isFIFO(queue string) bool { return strings.HasSuffix(queue, ".fifo") }

// QueueURL is the address of the queue, as SQS gave it.
func (s *Source) QueueURL() string { return s.url }

// Broker returns aws_sqs and the name of the queue, for traces.
func (s *Source) Broker() (system, destination string) { return brokerOf(s.url) }

// Broker returns aws_sqs and the name of the queue, for traces.
func (s *Sink) Broker() (system, destination string) { return brokerOf(s.url) }

func brokerOf(url string) (system, destination string) {
	return "aws_sqs", url[strings.LastIndexByte(url, '/')+1:]
}

// Info says for how long a message of this queue may come again without being sent again: for the queue's retention period, and, if it
// has a dead-letter queue, for fourteen days there (the longest period there is) and once more the period here, as a redrive starts it
// anew. A producer that sends again is not in it.
//
// Open asks SQS for it, and Info asks again if the answer is older than five minutes: the queue's settings may change under a running
// consumer. That call takes ten seconds at most; if it fails, the last answer holds, and the next call asks again after a minute.
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
		period = maxRetention // it does not say
	}
	if out.Attributes[string(redrive)] == "" {
		return period, nil
	}
	return period + maxRetention + period, nil
}

// resolve turns a name into a URL, and checks a URL by asking for the queue behind it.
func resolve(ctx context.Context, op string, client Resolver, queue string) (string, error) {
	if client == nil {
		return "", adapter.BadArgument(op, "the client is missing")
	}
	if queue == "" {
		return "", adapter.BadArgument(op, "the queue has no name")
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

// report emits an event that stands for n messages, if there are any.
func (s *Source) report(ctx context.Context, kind pawl.EventKind, op string, n int) {
	if n > 0 {
		s.emit(ctx, pawl.Event{Kind: kind, Op: op, Count: n})
	}
}

// lost counts messages whose handles died.
func (s *Source) lost(ctx context.Context, op string, n int) {
	s.counters.lostHandles.Add(int64(n))
	s.report(ctx, pawl.EventHandleLost, op, n)
}

func (s *Source) emit(ctx context.Context, e pawl.Event) {
	_, e.Scope = brokerOf(s.url)
	s.config.Hooks.Emit(context.WithoutCancel(ctx), e)
}

// A Backlog is what waits in a queue, by SQS's approximate counts: the signal to scale consumers by.
type Backlog struct {
	Visible  int // ready to be received
	InFlight int // received and neither deleted nor returned
	Delayed  int // sent with a delay that is not over
}

// Backlog asks SQS how much waits. The counts lag by up to a minute (GetQueueAttributes).
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
