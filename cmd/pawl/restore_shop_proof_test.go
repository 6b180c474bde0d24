//go:build proof

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	lib "github.com/pawl-go/pawl"
	commands "github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/incident"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schedule"
	"github.com/pawl-go/pawl/step"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
	"github.com/pawl-go/pawl/transport/webhook"
)

// shopTables are written by the shop's handlers. A second write of a row fails.
const shopTables = `create table shipped (what text primary key); create table paid (what text primary key); create table placed (what text primary key);
create table charged (what text primary key); create table ticked (schedule text, at timestamptz, primary key (schedule, at))`

// A shop is a program with every kind of entry point, and the outside systems, which no restore
// changes.
type shop struct {
	*testing.T
	orders       *awssqs.Client
	sender       *pawlsqs.Sender
	scheme       webhook.Scheme
	bank, mailer *pawltest.Provider // the bank remembers keys, the mailer does not
	inHand       chan struct{}      // the handler of payment p-3 has started
	release      chan struct{}      // it may continue

	mu     sync.Mutex
	events []lib.Message // published
	// work that outside systems saw, and the lives of the program in which it ran
	runs map[string][]int
}

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{T: t, inHand: make(chan struct{}, 100), release: make(chan struct{}), runs: map[string][]int{},
		bank: pawltest.NewProvider(t, time.Hour, nil), mailer: pawltest.NewProvider(t, 0, nil),
		scheme: webhook.StandardWebhooks(webhook.Secret{Value: webhookSecret})}
	s.orders = awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://sqs.test"), HTTPClient: sqstest.New(sqstest.Options{}),
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	_, err := s.orders.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("orders")})
	s.must(err)
	s.sender, err = pawlsqs.OpenSender(t.Context(), s.orders, "orders", "")
	s.must(err)
	return s
}

func (s *shop) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// ran records work that outside systems saw.
func (s *shop) ran(what string, life int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.runs[what], life) { // a transaction that lost a race runs again
		s.runs[what] = append(s.runs[what], life)
	}
}

// lives returns the lives of the program in which work ran.
func (s *shop) lives(what string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.runs[what])
}

// A life is one run of the program, on one database.
type life struct {
	*shop
	number int
	pool   *pgxpool.Pool
	door   *httptest.Server
	parts  []func() // to stop
}

const (
	// long enough for a waiting handler on a slow machine, short enough for doctor to notice
	shopLease = 5 * time.Second
	shopTick  = time.Second
)

// open starts the program. It stops at the end of the test at the latest.
func (s *shop) open(number int, url string) *life {
	s.Helper()
	pool, err := pgxpool.New(s.Context(), url+"&pool_max_conns=20")
	s.must(err)
	s.Cleanup(pool.Close)
	l := &life{shop: s, number: number, pool: pool}
	source, err := pawlsqs.Open(s.Context(), s.orders, "orders", pawlsqs.Config{Wait: time.Second})
	s.must(err)
	l.run(consumer.New(pool, consumer.Config{Name: "orders", Source: source, Concurrency: 2, RetryConcurrency: 1, Hooks: quiet,
		Handler: consumer.HandleTx(l.ship).With(consumer.TxPolicy{Policy: consumer.Policy{Lease: shopLease}})}))
	verifier, err := webhook.New(webhook.Config{Scheme: s.scheme, Hooks: quiet})
	s.must(err)
	receiver, err := webhook.NewReceiver(verifier, webhook.ReceiverConfig{Hooks: quiet})
	s.must(err)
	l.door = httptest.NewServer(receiver)
	s.Cleanup(l.door.Close)
	l.run(consumer.New(pool, consumer.Config{Name: "payments", Source: receiver, RetryConcurrency: 1, Hooks: quiet,
		Handler: consumer.Handle(l.pay).With(consumer.Policy{Lease: shopLease})}))
	l.run(job.NewWorker(pool, job.Config{Queues: []job.Queue{{Name: "invoices"}, {Name: "fees"}, {Name: "ticks"}}, Lease: shopLease, Hooks: quiet,
		Handlers: []job.Handler{job.Handle("invoice", l.charge), job.Handle("fee", l.charge), job.HandleTx("tick", l.tick)}}))
	return l
}

// relay publishes events. Like keep, it is not started by open.
func (l *life) relay() {
	l.Helper()
	l.run(outbox.NewRelay(l.pool, outbox.Config{Lease: shopLease, Hooks: quiet, Sink: outbox.Func(func(_ context.Context, m lib.Message) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, m)
		return nil
	})}))
}

// keep lets the schedules tick.
func (l *life) keep() (stop func()) {
	l.Helper()
	return l.run(schedule.NewKeeper(l.pool, schedule.Config{Hooks: quiet}))
}

// run runs a part of the program, given the result of its constructor.
func (l *life) run(part interface{ Run(context.Context) error }, err error) (stop func()) {
	l.Helper()
	l.must(err)
	stop = background(l.T, fmt.Sprintf("%T", part), part.Run)
	l.parts = append(l.parts, stop)
	return stop
}

func (l *life) stop() {
	for _, stop := range l.parts {
		stop()
	}
	l.door.Close()
	l.pool.Close()
}

// ship handles an order: a row, an event with a key, and an event without one.
func (l *life) ship(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
	l.ran(d.Key, l.number)
	if _, err := tx.Exec(ctx, "insert into shipped values ($1)", d.Key); err != nil {
		return err
	}
	_, err := outbox.Append(ctx, tx, outbox.Event{Type: "OrderShipped", Scope: "orders", Key: d.Key, Value: d.Key}, outbox.Event{Type: "OrderNoted", Value: d.Key})
	return err
}

// pay handles a payment: a charge with a key, a mail without one, a row.
func (l *life) pay(ctx context.Context, a *consumer.Attempt[[]byte]) error {
	l.ran(a.Key, l.number)
	if a.Key == "p-3" {
		l.inHand <- struct{}{}
		select {
		case <-l.release:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := l.call(ctx, a, "charge", step.Keyed(time.Hour), "", l.bank, string(a.Payload)); err != nil {
		return err
	}
	if err := l.call(ctx, a, "mail", step.AtMostOnce(), "", l.mailer, string(a.Payload)); err != nil {
		return err
	}
	return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into paid values ($1)", a.Key)
		return err
	})
}

// charge is a job. An invoice gives its own key to the bank; a fee uses Pawl's.
func (l *life) charge(ctx context.Context, t job.Task[string]) error {
	l.ran(t.Value, l.number)
	key := ""
	if t.Kind == "invoice" {
		key = t.Value
	}
	if err := l.call(ctx, t, "charge", step.Keyed(time.Hour), key, l.bank, t.Value); err != nil {
		return err
	}
	_, err := l.pool.Exec(ctx, "insert into charged values ($1) on conflict do nothing", t.Value)
	return err
}

func (l *life) call(ctx context.Context, h lib.Holder, name string, policy step.Recovery, key string, at *pawltest.Provider, body string) error {
	s := step.Step{Name: name, Recovery: policy, Key: key, Request: []byte(body), Hooks: quiet}
	_, err := step.Run(ctx, l.pool, h, s, func(ctx context.Context, c step.Call) (string, error) {
		return incident.Post(ctx, incident.Caller(), at.URL+"/charges", body)
	})
	return err
}

func (l *life) tick(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error {
	tick, ok := schedule.TickOf(t.Job)
	if !ok {
		return lib.Final(errors.New("no tick"))
	}
	l.ran(tickName(tick.Schedule, tick.At), l.number)
	_, err := tx.Exec(ctx, "insert into ticked values ($1, $2)", tick.Schedule, tick.At)
	return err
}

func tickName(schedule string, at time.Time) string {
	return schedule + " " + at.UTC().Format(time.RFC3339Nano)
}

// place is the command of a caller: a row, and two jobs that charge. It reports whether the
// response was replayed.
func (l *life) place(key string) (replayed bool) {
	l.Helper()
	intent := lib.Intent{Scope: "shop", Key: key, Fingerprint: lib.FingerprintOf([]byte(key))}
	r, err := commands.Once(l.Context(), l.pool, intent, commands.Options{Hooks: quiet}, func(ctx context.Context, tx pgx.Tx) (string, error) {
		if _, err := tx.Exec(ctx, "insert into placed values ($1)", key); err != nil {
			return "", err
		}
		for _, kind := range []string{"invoice", "fee"} {
			what := kind + " of " + key
			if _, err := job.Enqueue(ctx, tx, job.Request{Queue: kind + "s", Kind: kind, Value: what, Key: what}); err != nil {
				return "", err
			}
		}
		return key, nil
	})
	l.must(err)
	return r.Replayed
}

// order sends an order as a producer.
func (s *shop) order(key string) {
	s.Helper()
	s.must(s.sender.Send(s.Context(), pawlsqs.Message{Key: key, Payload: []byte(key)}))
}

// webhook sends a webhook until the response is 200.
func (l *life) webhook(key string) {
	l.Helper()
	eventually(l.T, "webhook "+key+" is taken", func() bool {
		r, err := http.NewRequestWithContext(l.Context(), http.MethodPost, l.door.URL, bytes.NewReader([]byte(key)))
		l.must(err)
		r.Header, err = l.scheme.Sign(key, time.Now(), []byte(key))
		l.must(err)
		answer, err := http.DefaultClient.Do(r)
		l.must(err)
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
}

// until waits until a query of the program's database is true.
func (l *life) until(what, query string) {
	l.Helper()
	eventually(l.T, what, func() bool {
		var is bool
		l.must(l.pool.QueryRow(l.Context(), "select "+query).Scan(&is))
		return is
	})
}

// made counts what a provider really did, by request.
func made(p *pawltest.Provider) string {
	var all []string
	for _, c := range p.Charges() {
		all = append(all, c.Body)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
