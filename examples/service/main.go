// Command service takes orders over HTTP and from SQS and charges each at a payment provider. It
// books refunds from the provider's webhooks, publishes events and writes a daily report. Each
// takes effect once, however often requests are repeated and processes die.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/observe/prompawl"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/schedule"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/step"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/webhook"
)

func main() { service.Main(run) }

func run(ctx context.Context) error {
	pool, cfg, err := service.FromEnv(ctx)
	if err != nil {
		return err
	}
	if cfg.Hooks, err = prompawl.Register(prometheus.DefaultRegisterer, pool); err != nil {
		return err
	}
	aws, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	sqs := awssqs.NewFromConfig(aws)
	queue, err := pawlsqs.Open(ctx, sqs, os.Getenv("ORDERS_QUEUE"), pawlsqs.Config{})
	if err != nil {
		return err
	}
	sink, err := pawlsqs.OpenSink(ctx, sqs, os.Getenv("EVENTS_QUEUE"), pawlsqs.SinkConfig{})
	if err != nil {
		return err
	}
	verifier, err := webhook.New(webhook.Config{
		Scheme:      webhook.Stripe(webhook.Secret{Name: "primary", Value: os.Getenv("PAWL_WEBHOOK_SECRET")}),
		SemanticKey: webhook.KeyJSON("/type", "/data/object/id"), // two events may be one refund
	})
	if err != nil {
		return err
	}
	receiver, err := webhook.NewReceiver(verifier, webhook.ReceiverConfig{})
	if err != nil {
		return err
	}

	app, err := service.New(pool, cfg)
	if err != nil {
		return err
	}
	provider := payments{pool, &http.Client{Transport: &step.Transport{}}, os.Getenv("PAYMENTS_URL")}
	app.Consumer(consumer.Config{Name: "orders", Source: queue, Handler: consumer.HandleTx(receive)})
	app.Consumer(consumer.Config{Name: "webhooks", Source: receiver, Handler: consumer.HandleTx(refunded)})
	app.Worker(job.Config{Handlers: []job.Handler{job.HandleThenTx(charges, provider.charge, settle), reports.HandleTx(report)}})
	app.Relay(outbox.Config{Sink: sink})
	app.Schedules(schedule.Config{Schedules: []schedule.Schedule{
		{Name: "daily", Plan: schedule.Every(24 * time.Hour), Missed: schedule.MissedAll, Queue: reports.Queue(), Kind: reports.Kind()},
	}})

	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpkey.Once(pool, account, httpkey.Options{}, httpkey.JSON(http.StatusCreated, create)))
	mux.Handle("POST /webhooks/payments", receiver)
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.Handle("GET /livez", app.Live())
	mux.Handle("GET /readyz", app.Ready())
	app.HTTP(service.HTTPConfig{Address: cmp.Or(os.Getenv("LISTEN"), "localhost:8080"), Handler: mux, MaxConns: 4})
	return app.Run(ctx)
}

// account names the caller. Take yours from your authentication, never from an unverified header.
func account(r *http.Request) (string, error) {
	return cmp.Or(r.Header.Get("X-Account"), "anybody"), nil
}

// An Order is an order of a customer.
type Order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
}

// create takes an order over HTTP. The response is sent after COMMIT, and replayed if the caller
// retries with the same key. If the tables refuse the data, it is 422.
func create(r *http.Request, tx pgx.Tx, o Order) (Order, error) {
	return place(r.Context(), tx, o)
}

// receive takes an order from the queue. If the tables refuse the data, it becomes a dead letter.
func receive(ctx context.Context, tx pgx.Tx, m consumer.Message[Order]) error {
	_, err := place(ctx, tx, m.Value)
	return err
}

// place writes an order, its job and its event, in the transaction of the request or the message.
func place(ctx context.Context, tx pgx.Tx, o Order) (Order, error) {
	err := tx.QueryRow(ctx, "insert into orders (customer, cents) values ($1, $2) returning id", o.Customer, o.Cents).Scan(&o.ID)
	if err != nil {
		return o, err
	}
	if _, err := charges.Enqueue(ctx, tx, o); err != nil {
		return o, err
	}
	return o, tell(ctx, tx, "OrderPlaced", o)
}

// tell publishes an event if the transaction commits. The events of an order keep their order.
func tell(ctx context.Context, tx pgx.Tx, what string, o Order) error {
	_, err := outbox.Append(ctx, tx, outbox.Event{Type: what, AggregateType: "order", AggregateID: strconv.FormatInt(o.ID, 10), Value: o})
	return err
}

// charges are the jobs that charge an order.
var charges = job.Define("charge", job.Defaults[Order]{Queue: "payments"})

// A Charge is the provider's response. Declined is the reason if the card was refused.
type Charge struct{ ID, Declined string }

// payments is a provider that remembers keys for a day. step.Transport sends the step's key.
type payments struct {
	pool   *pgxpool.Pool
	client *http.Client
	url    string
}

// charge calls the provider without an open transaction. If the process dies, the next attempt
// repeats the call with the same key or finds its record. A declined card is a result.
func (p payments) charge(ctx context.Context, t job.Task[Order]) (Charge, error) {
	call := step.Step{Name: "charge", Recovery: step.Keyed(24 * time.Hour), Request: t.Value, Provider: "payments", Timeout: 5 * time.Second}
	charge, err := step.Run(ctx, p.pool, t.Job, call, func(ctx context.Context, c step.Call) (charge Charge, err error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(t.Payload))
		if err != nil {
			return charge, step.NotSent(err)
		}
		response, err := p.client.Do(request)
		if err != nil {
			return charge, err // it may have been charged
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode == http.StatusPaymentRequired {
			// the response to this key, now and later
			return charge, step.Refused("card_declined", "the card was declined")
		}
		if err := step.HTTPStatus(response.StatusCode, response.Status); err != nil {
			return charge, err
		}
		err = json.NewDecoder(response.Body).Decode(&charge)
		c.Reference(charge.ID)
		return charge, err
	})
	if refusal := new(step.Refusal); errors.As(err, &refusal) && refusal.Code == "card_declined" {
		return Charge{Declined: refusal.Message}, nil
	}
	return charge, err
}

// settle writes the provider's response. Row, event and the job's completion commit together.
func settle(ctx context.Context, tx pgx.Tx, t job.Task[Order], c Charge) error {
	if _, err := tx.Exec(ctx, "insert into payment (order_id, charge, declined) values ($1, $2, $3)", t.Value.ID, c.ID, c.Declined); err != nil {
		return err
	}
	if c.Declined != "" {
		return tell(ctx, tx, "OrderDeclined", t.Value)
	}
	return tell(ctx, tx, "OrderPaid", t.Value)
}

// A Notice is a webhook of the provider.
type Notice struct {
	Type string
	Data struct{ Object struct{ ID string } }
}

// refunded books a refund. If it comes before the charge's row, it fails and is retried.
func refunded(ctx context.Context, tx pgx.Tx, m consumer.Message[Notice]) error {
	if m.Value.Type != "charge.refunded" {
		return nil
	}
	var o Order
	if err := tx.QueryRow(ctx, `with r as (insert into refund (order_id) select p.order_id from payment as p where p.charge = $1 returning order_id)
select o.id, o.customer, o.cents from orders as o join r on r.order_id = o.id`, m.Value.Data.Object.ID).Scan(&o.ID, &o.Customer, &o.Cents); err != nil {
		return err
	}
	return tell(ctx, tx, "OrderRefunded", o)
}

// reports are the jobs of the schedule.
var reports = job.Define("report", job.Defaults[[]byte]{Queue: "reports"})

// report adds up a day after its end. The tick names the day, even if the job runs late.
func report(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error {
	tick, _ := schedule.TickOf(t.Job)
	_, err := tx.Exec(ctx, `insert into daily_report (until, paid, refunded) select $1,
 (select count(*) from payment as p where p.declined = '' and p.at >= $1::timestamptz - interval '1 day' and p.at < $1),
 (select count(*) from refund as r where r.at >= $1::timestamptz - interval '1 day' and r.at < $1)`, tick.At)
	return err
}
