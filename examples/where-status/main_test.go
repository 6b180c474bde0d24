package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// The contract: if a handler runs twice at once on a pending row, one run completes it and the
// other returns ErrAlreadyHandled.
func TestContract(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, Schema, "insert into orders (id) values (17)")
	w, err := newWorker(pool, guard.SweeperConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	told := map[string]int{}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			err := w.handle(t.Context(), consumer.Message[named]{Value: named{"17"}})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				told["done"]++
			case errors.Is(err, pawl.ErrAlreadyHandled):
				told["already handled"]++
			default:
				t.Error(err)
			}
		})
	}
	both.Wait()
	if told["done"] != 1 || told["already handled"] != 1 {
		t.Errorf("told %v", told)
	}
	var row string
	err = pool.QueryRow(t.Context(), `select concat_ws(' ', o.status, o.attempt_count, (select count(*) from shipment))
  from orders as o where o.id = 17`).Scan(&row)
	if err != nil || row != "completed 1 1" {
		t.Errorf("the row is %q, %v", row, err)
	}
}

// The whole worker ships every order once, although messages come twice, one order fails at first,
// and one has no message.
func TestWorker(t *testing.T) {
	t.Parallel()
	const orders = 20
	database := pawltest.URL(t, Schema, fmt.Sprintf("insert into orders (id, created_at) select g, now() - interval '1 hour' from generate_series(1, %d) as g", orders),
		`create function refuse() returns trigger language plpgsql as $$ begin
  if new.order_id = 7 and (select o.attempt_count from orders as o where o.id = 7) < 2 then raise 'out of stock'; end if;
  return new; end $$`, "create trigger refuse before insert on shipment for each row execute function refuse()")
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	listener, err := sqstest.New(sqstest.Options{}).Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	endpoint := listener.URL
	client := awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	if _, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("orders")}); err != nil {
		t.Fatal(err)
	}
	sender, err := pawlsqs.OpenSender(t.Context(), client, "orders", "")
	if err != nil {
		t.Fatal(err)
	}
	for n := range orders - 1 { // the last one has no message
		m := pawlsqs.Message{Key: fmt.Sprint(n), Payload: fmt.Appendf(nil, `{"order": %d}`, n+1)}
		if err := sender.Send(t.Context(), m, m); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		ended <- consume(ctx, pool, client, "orders", guard.SweeperConfig{Every: 50 * time.Millisecond, Wait: time.Millisecond})
	}()
	patience.Until(t, "all are completed and shipped", func() bool {
		var completed, shipped int
		err := pool.QueryRow(t.Context(), `select count(*) filter (where o.status = 'completed'), (select count(*) from shipment)
  from orders as o`).Scan(&completed, &shipped)
		if err != nil || shipped > orders {
			t.Fatalf("%d completed, %d shipped, %v", completed, shipped, err)
		}
		return completed == orders && shipped == orders
	})
	stop()
	// ends the running poll
	if err := sender.Send(t.Context(), pawlsqs.Message{Key: "late", Payload: []byte(`{"order": 1}`)}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
