package pawlsqs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

// lambdaEvent is an event as Lambda sends it. Records are "group/number".
func lambdaEvent(queue string, records ...string) json.RawMessage {
	var all []string
	for _, r := range records {
		group, _, _ := strings.Cut(r, "/")
		all = append(all, fmt.Sprintf(`{"messageId":"id-%s","receiptHandle":"AQEB","body":"body",
 "attributes":{"ApproximateReceiveCount":"2","SentTimestamp":"%d","MessageGroupId":%q},
 "messageAttributes":{"Idempotency-Key":{"stringValue":%q,"stringListValues":[],"binaryListValues":[],"dataType":"String"}},
 "md5OfBody":"x","eventSource":"aws:sqs","eventSourceARN":"arn:aws:sqs:us-east-1:1:%s","awsRegion":"us-east-1"}`, r, time.Now().UnixMilli(), group, r, queue))
	}
	return json.RawMessage(`{"Records":[` + strings.Join(all, ",") + `]}`)
}

func failuresOf(r pawlsqs.LambdaResponse) string {
	var ids []string
	for _, f := range r.BatchItemFailures {
		ids = append(ids, strings.TrimPrefix(f.ItemIdentifier, "id-"))
	}
	return strings.Join(ids, " ")
}

// consume acts as a consumer. It acknowledges deliveries for which good returns true and releases
// the others, until the batch is done.
func consume(t *testing.T, b *pawlsqs.LambdaBatch, good func(pawl.Delivery) bool) (order string) {
	t.Helper()
	ctx, done := b.Until(t.Context())
	defer done()
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	var keys []string
	for {
		ds, err := b.Receive(ctx, 1)
		if err != nil {
			if ctx.Err() == context.DeadlineExceeded {
				t.Fatal("the batch did not end")
			}
			return strings.Join(keys, " ")
		}
		for _, d := range ds {
			keys = append(keys, d.Key)
			if good(d) {
				err = b.Ack(ctx, committed(d)...)
			} else {
				err = b.Release(ctx, time.Second, d)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestLambda_NamesWhatFailed(t *testing.T) {
	t.Parallel()
	good := func(d pawl.Delivery) bool { return !strings.HasSuffix(d.Key, "/2") }
	for _, c := range []struct{ queue, order, failed string }{
		{"q", "a/1 a/2 b/1 a/3", "a/2"},
		{"q.fifo", "a/1 a/2 b/1", "a/2 a/3"}, // the group stops at its failure, the other goes on
	} {
		b, err := pawlsqs.OpenLambda(lambdaEvent(c.queue, "a/1", "a/2", "b/1", "a/3"), pawlsqs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if order := consume(t, b, good); order != c.order {
			t.Errorf("%s: handled %s, want %s", c.queue, order, c.order)
		}
		if got := failuresOf(b.Response()); got != c.failed {
			t.Errorf("%s: failed %s, want %s", c.queue, got, c.failed)
		}
	}
}

// Messages not settled stay in the response, so a function that times out loses none.
func TestLambda_UnsettledComesAgain(t *testing.T) {
	t.Parallel()
	b, err := pawlsqs.OpenLambda(lambdaEvent("q", "a/1", "a/2"), pawlsqs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ds, err := b.Receive(ctx, 1)
	if err != nil || len(ds) != 1 || ds[0].Receives != 2 || ds[0].MessageID != "id-a/1" || ds[0].OrderingKey != "" {
		t.Fatalf("got %+v, %v", ds, err)
	}
	if err := b.Ack(ctx, pawl.Receipt{}); pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
		t.Errorf("the zero receipt: %v", err)
	}
	cancel()
	if got := failuresOf(b.Response()); got != "a/1 a/2" {
		t.Errorf("failed %s", got)
	}
}

func TestLambda_Events(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{`x`, `{"Records":[{"eventSource":"aws:kinesis"}]}`} {
		if _, err := pawlsqs.OpenLambda(json.RawMessage(bad), pawlsqs.Config{}); pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
	b, err := pawlsqs.OpenLambda(json.RawMessage(`{"Records":[]}`), pawlsqs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if order := consume(t, b, nil); order != "" {
		t.Errorf("handled %s", order)
	}
	if text, err := json.Marshal(b.Response()); err != nil || string(text) != `{"batchItemFailures":[]}` {
		t.Errorf("%s, %v", text, err)
	}
}

// A consumer handles an invocation. Deliveries that took effect or were stored are done; released
// ones are in the response.
func TestLambda_ThroughAConsumer(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, "create table effect (key text not null)")
	invoke := func(records ...string) string {
		b, err := pawlsqs.OpenLambda(lambdaEvent("q", records...), pawlsqs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := consumer.New(pool, consumer.Config{Name: "orders", Source: b, Concurrency: 1, RetryConcurrency: 1,
			Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
				if d.Key == "a/2" {
					return errors.New("not now")
				}
				return apply(ctx, tx, d)
			}).With(consumer.TxPolicy{Policy: consumer.Policy{Backoff: job.Backoff{Base: time.Hour}}})})
		if err != nil {
			t.Fatal(err)
		}
		ctx, done := b.Until(t.Context())
		defer done()
		if err := f.Run(ctx); err != nil {
			t.Fatal(err)
		}
		return failuresOf(b.Response())
	}
	// Lambda may invoke twice
	for _, failed := range []string{invoke("a/1", "a/2", "a/3"), invoke("a/1", "a/3")} {
		if failed != "" {
			t.Errorf("failed %s", failed)
		}
	}
	var effects, stored int
	if err := pool.QueryRow(t.Context(), "select (select count(*) from effect), (select count(*) from pawl.job)").Scan(&effects, &stored); err != nil || effects != 2 || stored != 1 {
		t.Errorf("%d effects, %d stored, %v; want 2 and 1", effects, stored, err)
	}
}
