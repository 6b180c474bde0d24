package pawlsqs

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// A LambdaBatch is a [pawl.Source] of the messages that an event source mapping passed to one
// invocation of an AWS Lambda function. Lambda polls and deletes: it deletes messages that are
// acknowledged here and redelivers those named in the [LambdaResponse]. Set ReportBatchItemFailures
// in the mapping's function response types; without it one failure returns the whole batch.
//
//	func handle(ctx context.Context, event json.RawMessage) (pawlsqs.LambdaResponse, error) {
//		batch, err := pawlsqs.OpenLambda(event, pawlsqs.Config{})
//		if err != nil {
//			return pawlsqs.LambdaResponse{}, err
//		}
//		f, err := consumer.New(pool, consumer.Config{Name: "orders", Source: batch, Handler: consumer.HandleTx(apply)})
//		if err != nil {
//			return pawlsqs.LambdaResponse{}, err
//		}
//		ctx, done := batch.Until(ctx)
//		defer done()
//		if err := f.Run(ctx); err != nil {
//			return pawlsqs.LambdaResponse{}, err
//		}
//		return batch.Response(), nil
//	}
//
// A failed delivery is stored and acknowledged, as with every source. A function does not run
// between invocations. To retry stored deliveries, run a consumer of the same name in another
// process.
//
// There is no heartbeat, because Lambda holds the messages. The queue's visibility timeout must be
// longer than the function's timeout; AWS recommends six times.
type LambdaBatch struct {
	config Config
	over   chan struct{}

	mu      sync.Mutex
	waiting []pawl.Delivery     // not handed out yet, in the order of the event
	left    map[*arrival]string // message ids not acknowledged
	open    int                 // number not settled
	ids     []*arrival          // in the order of the event
}

var _ pawl.Source = (*LambdaBatch)(nil)

// A LambdaResponse is the function's return value. If it is empty, all messages are done.
type LambdaResponse struct {
	BatchItemFailures []LambdaFailure `json:"batchItemFailures"`
}

// A LambdaFailure names a message to be redelivered.
type LambdaFailure struct {
	ItemIdentifier string `json:"itemIdentifier"`
}

// lambdaEvent is the event documented in "Using Lambda with Amazon SQS".
type lambdaEvent struct {
	Records []struct {
		MessageID         string            `json:"messageId"`
		ReceiptHandle     string            `json:"receiptHandle"`
		Body              string            `json:"body"`
		Attributes        map[string]string `json:"attributes"`
		EventSource       string            `json:"eventSource"`
		EventSourceARN    string            `json:"eventSourceARN"`
		MessageAttributes map[string]struct {
			DataType    string  `json:"dataType"`
			StringValue *string `json:"stringValue"`
			BinaryValue []byte  `json:"binaryValue"`
		} `json:"messageAttributes"`
	}
}

// OpenLambda reads an event. It uses only the fields Key and Unwrap of cfg, but checks all of them.
func OpenLambda(event json.RawMessage, cfg Config) (*LambdaBatch, error) {
	cfg, err := cfg.filled()
	if err != nil {
		return nil, err
	}
	var e lambdaEvent
	if err := json.Unmarshal(event, &e); err != nil {
		return nil, adapter.BadArgument("sqs.lambda", "the event is not an SQS event in JSON: %v", err)
	}
	b := &LambdaBatch{config: cfg, over: make(chan struct{}), left: map[*arrival]string{}, open: len(e.Records)}
	for i, r := range e.Records {
		if r.EventSource != "aws:sqs" || r.MessageID == "" {
			return nil, adapter.BadArgument("sqs.lambda", "record %d is not from SQS", i)
		}
		m := types.Message{MessageId: &r.MessageID, ReceiptHandle: &r.ReceiptHandle, Body: &r.Body, Attributes: r.Attributes,
			MessageAttributes: map[string]types.MessageAttributeValue{}}
		for name, a := range r.MessageAttributes {
			m.MessageAttributes[name] = types.MessageAttributeValue{DataType: &a.DataType, StringValue: a.StringValue, BinaryValue: a.BinaryValue}
		}
		reader := &Source{config: cfg, fifo: isFIFO(r.EventSourceARN)}
		d := reader.delivery(m, time.Now())
		b.left[handleOf(d)] = r.MessageID
		b.ids = append(b.ids, handleOf(d))
		b.waiting = append(b.waiting, d)
	}
	if b.open == 0 {
		close(b.over)
	}
	return b, nil
}

// Until returns a context that ends when every message of the batch is settled, or with ctx.
func (b *LambdaBatch) Until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-b.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Receive returns the messages not handed out yet. If there are none, it waits for ctx to end.
func (b *LambdaBatch) Receive(ctx context.Context, max int) ([]pawl.Delivery, error) {
	if ctx.Err() == nil {
		if ds := b.take(max); len(ds) > 0 {
			return ds, nil
		}
		<-ctx.Done()
	}
	return nil, wrap("sqs.receive", "", ctx.Err())
}

func (b *LambdaBatch) take(max int) []pawl.Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(max, len(b.waiting))
	ds := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return ds
}

// Info claims no redelivery horizon, because the function may lack permission to ask the queue.
func (b *LambdaBatch) Info() pawl.SourceInfo { return pawl.SourceInfo{} }

// Ack removes messages from the response.
func (b *LambdaBatch) Ack(_ context.Context, rs ...pawl.Receipt) error {
	held, err := ackable(rs)
	b.settle(held, true)
	return err
}

// Release keeps messages in the response, so Lambda redelivers them, with the messages of their
// groups not handed out yet. delay has no effect: the queue's visibility timeout decides.
func (b *LambdaBatch) Release(_ context.Context, _ time.Duration, ds ...pawl.Delivery) error {
	held, err := releasable(ds)
	b.settle(append(held, b.behind(ds)...), false)
	return err
}

// behind removes and returns the waiting messages of the groups of ds.
func (b *LambdaBatch) behind(ds []pawl.Delivery) (as []*arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(w pawl.Delivery) bool {
		held := w.OrderingKey != "" && slices.ContainsFunc(ds, func(d pawl.Delivery) bool { return d.OrderingKey == w.OrderingKey })
		if held {
			as = append(as, handleOf(w))
		}
		return held
	})
	return as
}

func (b *LambdaBatch) settle(as []*arrival, acked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range as {
		if _, ours := b.left[a]; !ours {
			continue
		}
		if acked {
			delete(b.left, a)
		}
		if b.open--; b.open == 0 {
			close(b.over)
		}
	}
}

// Response names every message not acknowledged, in the order of the event. Call it after the
// consumer has ended.
func (b *LambdaBatch) Response() LambdaResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := LambdaResponse{BatchItemFailures: []LambdaFailure{}}
	for _, a := range b.ids {
		if id, left := b.left[a]; left {
			r.BatchItemFailures = append(r.BatchItemFailures, LambdaFailure{id})
		}
	}
	return r
}
