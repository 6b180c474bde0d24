// Command webhook-in takes webhooks of two senders, each delivery once, however often it is sent.
//
//	go run ./examples/webhook-in -try     # everything in one: senders that send each thing three times, and what it came to
//	go run ./examples/webhook-in          # the server alone, for pawl webhook send and curl
//
// It uses the database in DATABASE_URL, or starts a private one and removes it at the end.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/transport/webhook"
)

func main() {
	try := flag.Bool("try", false, "send each thing three times, say what it came to, and end")
	flag.Parse()
	service.Main(func(ctx context.Context) error {
		return run(ctx, os.Getenv("DATABASE_URL"), cmp.Or(os.Getenv("LISTEN"), "localhost:8080"), *try)
	})
}

func run(ctx context.Context, database, address string, try bool) error {
	database, stop, err := prepare(ctx, database)
	if err != nil {
		return err
	}
	defer stop()
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return err
	}
	config.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	app, err := open(pool, listener)
	if err != nil {
		return err
	}
	log.Printf("serving http://%s/github and /stripe", listener.Addr())
	if try {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- app.Run(ctx) }()
		err = tryOut(ctx, "http://"+listener.Addr().String(), pool)
		cancel()
		return errors.Join(err, <-ended)
	}
	return app.Run(ctx)
}

// open makes an app with a receiver and a consumer for each sender. Each sender has its own
// consumer, because ids of different senders are unrelated.
func open(pool *pgxpool.Pool, listener net.Listener) (*service.App, error) {
	app, err := service.New(pool, service.Config{})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for path, c := range map[string]struct {
		verifier webhook.Config
		receiver webhook.ReceiverConfig
		handler  consumer.Handler
	}{
		// GitHub signs neither time nor id. The body is a second key, so that a captured request
		// cannot be sent under another id.
		"/github": {webhook.Config{Scheme: webhook.GitHub(secret("GITHUB_SECRET")), SemanticKey: webhook.KeyBody()}, webhook.ReceiverConfig{}, consumer.HandleTx(pushed)},
		// Stripe may announce one change as two events. An invoice is paid once, even under two
		// event ids.
		"/stripe": {webhook.Config{Scheme: webhook.Stripe(secret("STRIPE_SECRET")), SemanticKey: webhook.KeyFunc(paidInvoice)},
			webhook.ReceiverConfig{ProducedAt: webhook.CreatedAt("/created")}, consumer.HandleTx(paid)},
	} {
		verifier, err := webhook.New(c.verifier)
		if err != nil {
			return nil, err
		}
		receiver, err := webhook.NewReceiver(verifier, c.receiver)
		if err != nil {
			return nil, err
		}
		mux.Handle(path, receiver)
		app.Consumer(consumer.Config{Name: path[1:], Source: receiver, Handler: c.handler, Concurrency: 2, RetryConcurrency: 1})
	}
	app.HTTP(service.HTTPConfig{Listener: listener, Handler: mux})
	return app, nil
}

// secret reads a secret from the environment. Use no default in production.
func secret(name string) webhook.Secret {
	return webhook.Secret{Name: name, Value: cmp.Or(os.Getenv(name), "for-trying-it-out-only")}
}

// A push is GitHub's payload of a push. A payload that does not decode becomes a dead letter.
type push struct{ Ref, After string }

// pushed writes the position of a branch. Its row and the record of the delivery commit together.
func pushed(ctx context.Context, tx pgx.Tx, m consumer.Message[push]) error {
	if m.Attributes["X-Github-Event"] != "push" {
		return nil // ping, for instance
	}
	_, err := tx.Exec(ctx, "insert into push (ref, commit) values ($1, $2)", m.Value.Ref, m.Value.After)
	return err // retried from the database, with back-off
}

// An event is one of Stripe's events.
type event struct {
	Type string
	Data struct {
		Object struct {
			ID         string
			AmountPaid int64 `json:"amount_paid"`
		}
	}
}

// paidInvoice returns a second key for events that can happen only once. Other events have none.
func paidInvoice(m webhook.Verified) string {
	var e event
	if json.Unmarshal(m.Body, &e) != nil || e.Type != "invoice.paid" {
		return ""
	}
	return pawl.Key(e.Type, e.Data.Object.ID)
}

// paid books a paid invoice.
func paid(ctx context.Context, tx pgx.Tx, m consumer.Message[event]) error {
	e := m.Value
	if e.Type != "invoice.paid" {
		return nil
	}
	_, err := tx.Exec(ctx, "insert into booking (invoice, cents) values ($1, $2)", e.Data.Object.ID, e.Data.Object.AmountPaid)
	return err
}
