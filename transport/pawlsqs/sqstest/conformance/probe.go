package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// A check is one promise of SQS, tested from outside.
type check struct {
	name  string        // "fifo/order"
	says  string        // the promise, in one line
	takes time.Duration // shortest real time it takes; 0: a few seconds
	try   func(*probe)
}

// A probe is one run of one check: a client and the queues it created. Its methods end the check on
// a failure.
type probe struct {
	ctx    context.Context
	client *sqs.Client
	prefix string // of queue names, different in each run
	made   []string
}

// A verdict is the panic value of a failed check.
type verdict struct{ text string }

func (p *probe) fatalf(format string, args ...any) { panic(verdict{fmt.Sprintf(format, args...)}) }

func (p *probe) must(err error) {
	if err != nil {
		p.fatalf("%v", err)
	}
}

var runs atomic.Int64

// limit is added to the time that a check takes, to bound it on an endpoint that does not respond.
const limit = 2 * time.Minute

// run runs a check and returns its failure, or "". It deletes the check's queues in any case.
func (c check) run(parent context.Context, client *sqs.Client, prefix string) (wrong string) {
	ctx, cancel := context.WithTimeoutCause(parent, c.takes+limit, fmt.Errorf("it does not end within %v", c.takes+limit))
	defer cancel()
	p := &probe{ctx: ctx, client: client, prefix: fmt.Sprintf("%s-%d", prefix, runs.Add(1))}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), 10*time.Second)
		defer cancel()
		for _, url := range p.made {
			_, _ = client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &url})
		}
	}()
	defer func() {
		switch end := recover().(type) {
		case nil:
		case verdict:
			wrong = end.text
		default:
			wrong = fmt.Sprintf("panic: %v\n%s", end, debug.Stack())
		}
	}()
	c.try(p)
	return ""
}

// pairs makes a map of alternating names and values.
func pairs(attributes []string) map[string]string {
	all := map[string]string{}
	for i := 0; i+1 < len(attributes); i += 2 {
		all[attributes[i]] = attributes[i+1]
	}
	return all
}

func (p *probe) name(suffix string) string {
	return fmt.Sprintf("%s-%d%s", p.prefix, len(p.made), suffix)
}

// queue creates a standard queue with a visibility timeout of 2 s, unless attributes sets another.
func (p *probe) queue(attributes ...string) string {
	return p.create(p.name(""), append([]string{"VisibilityTimeout", "2"}, attributes...)...)
}

func (p *probe) fifo(attributes ...string) string {
	return p.create(p.name(".fifo"), append([]string{"VisibilityTimeout", "2", "FifoQueue", "true"}, attributes...)...)
}

func (p *probe) create(name string, attributes ...string) string {
	out, err := p.client.CreateQueue(p.ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: pairs(attributes)})
	p.must(err)
	if !slices.Contains(p.made, *out.QueueUrl) {
		p.made = append(p.made, *out.QueueUrl)
	}
	return *out.QueueUrl
}

func (p *probe) attribute(url string, name types.QueueAttributeName) string {
	out, err := p.client.GetQueueAttributes(p.ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{name}})
	p.must(err)
	return out.Attributes[string(name)]
}

// counts reads the numbers ready, in flight and delayed. They are approximate, so it waits up to a
// minute for want.
func (p *probe) counts(url, want string) {
	got := ""
	for range 60 {
		got = fmt.Sprint(p.attribute(url, "ApproximateNumberOfMessages"), " ", p.attribute(url, "ApproximateNumberOfMessagesNotVisible"), " ",
			p.attribute(url, "ApproximateNumberOfMessagesDelayed"))
		if got == want {
			return
		}
		p.sleep(time.Second)
	}
	p.fatalf("ready, in flight, delayed are %s, want %s", got, want)
}

// withDLQ creates a queue and its dead-letter queue. Messages go to dead after count receives.
func (p *probe) withDLQ(make func(...string) string, count int) (source, dead string) {
	dead = make()
	policy := fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, p.attribute(dead, "QueueArn"), count)
	return make("RedrivePolicy", policy), dead
}

func (p *probe) trySend(url, body string, change ...func(*sqs.SendMessageInput)) (*sqs.SendMessageOutput, error) {
	in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &body}
	for _, c := range change {
		c(in)
	}
	return p.client.SendMessage(p.ctx, in)
}

func (p *probe) send(url, body string, change ...func(*sqs.SendMessageInput)) *sqs.SendMessageOutput {
	out, err := p.trySend(url, body, change...)
	p.must(err)
	return out
}

// in sets the group and the deduplication id of a message.
func in(group, dedup string) func(*sqs.SendMessageInput) {
	return func(in *sqs.SendMessageInput) {
		in.MessageGroupId = &group
		if dedup != "" {
			in.MessageDeduplicationId = &dedup
		}
	}
}

// sendGroup sends one message for each body, with group and body together as its deduplication id.
func (p *probe) sendGroup(url, group string, bodies ...string) {
	for _, body := range bodies {
		p.send(url, body, in(group, group+body))
	}
}

func with(name string, a types.MessageAttributeValue) func(*sqs.SendMessageInput) {
	return func(in *sqs.SendMessageInput) {
		if in.MessageAttributes == nil {
			in.MessageAttributes = map[string]types.MessageAttributeValue{}
		}
		in.MessageAttributes[name] = a
	}
}

func text(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
}

func (p *probe) tryReceive(url string, change ...func(*sqs.ReceiveMessageInput)) ([]types.Message, error) {
	in := &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}}
	for _, c := range change {
		c(in)
	}
	out, err := p.client.ReceiveMessage(p.ctx, in)
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

// receive makes one call, which waits a second unless changed.
func (p *probe) receive(url string, change ...func(*sqs.ReceiveMessageInput)) []types.Message {
	ms, err := p.tryReceive(url, change...)
	p.must(err)
	return ms
}

func waiting(seconds int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.WaitTimeSeconds = seconds }
}

func hiding(seconds int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.VisibilityTimeout = seconds }
}

func atMost(n int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.MaxNumberOfMessages = n }
}

// get receives until it has n messages, for 20 s at most.
func (p *probe) get(url string, n int, change ...func(*sqs.ReceiveMessageInput)) (all []types.Message) {
	for start := time.Now(); len(all) < n; {
		all = append(all, p.receive(url, change...)...)
		if len(all) < n && time.Since(start) > 20*time.Second {
			break
		}
	}
	if len(all) != n {
		p.fatalf("received %d messages, want %d", len(all), n)
	}
	return all
}

func (p *probe) one(url string, change ...func(*sqs.ReceiveMessageInput)) types.Message {
	return p.get(url, 1, change...)[0]
}

// none polls for a second and expects no message.
func (p *probe) none(url string) {
	if ms := p.receive(url); len(ms) != 0 {
		p.fatalf("received %d messages (%s), want none", len(ms), bodies(ms))
	}
}

func (p *probe) order(url, want string, change ...func(*sqs.ReceiveMessageInput)) []types.Message {
	ms := p.get(url, len(strings.Fields(want)), change...)
	if got := bodies(ms); got != want {
		p.fatalf("received %q, want %q", got, want)
	}
	return ms
}

func bodies(ms []types.Message) string {
	all := make([]string, len(ms))
	for i, m := range ms {
		all[i] = *m.Body
	}
	return strings.Join(all, " ")
}

func (p *probe) delete(url string, m types.Message) error {
	_, err := p.client.DeleteMessage(p.ctx, &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle})
	return err
}

func (p *probe) hide(url string, m types.Message, seconds int32) error {
	_, err := p.client.ChangeMessageVisibility(p.ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &url,
		ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds})
	return err
}

func (p *probe) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.ctx.Done():
		p.fatalf("%v", context.Cause(p.ctx))
	}
}

// took compares the time since start with want. It tolerates 1.5 s plus the time of five simple
// calls, so that a slow endpoint does not fail.
func (p *probe) took(start time.Time, want time.Duration) {
	got := time.Since(start)
	asked := time.Now()
	_, err := p.client.ListQueues(p.ctx, &sqs.ListQueuesInput{QueueNamePrefix: &p.prefix})
	p.must(err)
	tolerance := 1500*time.Millisecond + 5*time.Since(asked)
	if got < want-250*time.Millisecond || got > want+tolerance {
		p.fatalf("took %v, want %v and at most %v more", got.Round(time.Millisecond), want, tolerance.Round(time.Millisecond))
	}
}

// code checks the error code of a refused call, as the query protocol names it.
func (p *probe) code(call string, err error, want string) {
	var api smithy.APIError
	switch {
	case err == nil:
		p.fatalf("%s is accepted, want %s", call, want)
	case !errors.As(err, &api):
		p.fatalf("%s: %v, want %s", call, err, want)
	case api.ErrorCode() != want:
		p.fatalf("%s is refused with %s, want %s (%v)", call, api.ErrorCode(), want, err)
	}
}

// typed checks that a call was refused with the SDK's error type T.
func typed[T error](p *probe, call string, err error) {
	var want T
	if err == nil {
		p.fatalf("%s is accepted, want %T", call, want)
	}
	if !errors.As(err, &want) {
		p.fatalf("%s is refused with %v, want %T", call, err, want)
	}
}

func (p *probe) equal(what string, got, want any) {
	if got != want {
		p.fatalf("%s is %v, want %v", what, got, want)
	}
}

func count(m types.Message) int {
	n, _ := strconv.Atoi(m.Attributes["ApproximateReceiveCount"])
	return n
}
