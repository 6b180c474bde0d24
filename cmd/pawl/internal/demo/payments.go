package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/checker"
	"github.com/pawl-go/pawl/internal/testbed/provider"
	"github.com/pawl-go/pawl/step"
)

// Payments. Each arrow may be taken twice, and each box has one effect.
//
//	webhook ──▶ receiver ──▶ stored ──▶ charge ──▶ mail ──▶ rows + event ──▶ outbox
//	 signed     200: it is              keyed      at most  in one
//	            in the database                    once     transaction
//	outbox ──▶ relay ──▶ consumer: a row

// payments is the part of a worker's configuration for providers and webhooks.
type payments struct {
	ChargeURL, MailURL string
	Secret             string // of the webhooks
}

// callPoints are the crash points around a call, and at the end of a payment.
var callPoints = []string{"step.plan.before", "step.plan.after", "step.call.before", "step.call.after", "step.record.after", "attempt.commit.before"}

// callLimit is the timeout of a provider.
const callLimit = time.Second

// pay returns the first consumer, with the receiver of its webhooks and the asker that settles its
// unknown calls.
func (c workerConfig) pay(pool *pgxpool.Pool, hooks pawl.Hooks) (first *consumer.Consumer, more []part, err error) {
	webhooks, err := newReceiver(c.Payments.Secret, hooks)
	if err != nil {
		return nil, nil, err
	}
	first, err = consumer.New(pool, consumer.Config{
		Name: c.Schema, Source: webhooks, Concurrency: 6, RetryConcurrency: 2, Hooks: hooks,
		Handler: c.payer(pool, hooks).With(consumer.Policy{Lease: lease, MaxAttempts: 50, Backoff: backoff}),
	})
	return first, []part{webhooks, &asker{c, pool}}, err
}

// payer is the handler of a payment. No transaction is open during its calls.
func (c workerConfig) payer(pool *pgxpool.Pool, hooks pawl.Hooks) consumer.LeasedHandler {
	caller := &http.Client{Transport: &step.Transport{Base: oneRequestEach()}}
	return consumer.Handle(func(ctx context.Context, a *consumer.Attempt[order]) error {
		o := a.Value
		if o.Poison {
			return pawl.Final(errors.New("this payment cannot be made"))
		}
		call := func(name, at string, policy step.Recovery, to string) error {
			s := step.Step{Name: name, Provider: at, Recovery: policy, Request: a.Payload, Timeout: callLimit, Hooks: hooks}
			_, err := step.Run(ctx, pool, a, s, func(ctx context.Context, e step.Call) (provider.Charge, error) {
				made, err := post(ctx, caller, to, a.Payload)
				e.Reference(made.ID)
				return made, err
			})
			return err
		}
		if err := call("charge", "bank", step.Keyed(time.Hour), c.Payments.ChargeURL); err != nil {
			return err
		}
		if c.unlucky(a.Delivery) {
			return errors.New("the handler failed after it had charged")
		}
		if err := call("mail", c.mailServer(), step.AtMostOnce(), c.Payments.MailURL); err != nil {
			return err
		}
		return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return c.order(ctx, tx, o) })
	})
}

// mailServer is the provider's name in the database, which other users may share.
func (c workerConfig) mailServer() string { return c.Schema + "/mail" }

// oneRequestEach is a transport without keep-alive: a broken connection leaves one call in doubt.
func oneRequestEach() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives = true
	return t
}

func post(ctx context.Context, client *http.Client, to string, body []byte) (made provider.Charge, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return made, step.NotSent(err)
	}
	return answerOf(client.Do(r))
}

func answerOf(answer *http.Response, failed error) (made provider.Charge, err error) {
	if failed != nil {
		return made, failed
	}
	defer func() { _ = answer.Body.Close() }()
	if err := step.HTTPStatus(answer.StatusCode, answer.Status); err != nil {
		return made, err
	}
	err = json.NewDecoder(answer.Body).Decode(&made)
	return made, err
}

// sent asks a mail server whether it has sent the mail of a call.
func sent(ctx context.Context, client *http.Client, at string, c step.Call) (step.ProbeResult, any, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"?key="+url.QueryEscape(c.Key()), nil)
	if err != nil {
		return "", nil, err
	}
	answer, err := client.Do(r)
	if err == nil && answer.StatusCode == http.StatusNotFound {
		return step.NotExecuted, nil, answer.Body.Close()
	}
	made, err := answerOf(answer, err)
	c.Reference(made.ID)
	return step.Executed, made, err
}

// An asker settles mails with an unknown outcome: it looks at the sent mails, as a person would.
type asker struct {
	workerConfig
	pool *pgxpool.Pool
}

// Run asks at intervals until ctx ends.
func (a *asker) Run(ctx context.Context) error {
	client := &http.Client{Transport: &step.Transport{Base: oneRequestEach(), Reads: true}}
	probe := func(ctx context.Context, e step.Call) (step.ProbeResult, any, error) {
		return sent(ctx, client, a.Payments.MailURL, e)
	}
	for {
		_, err := step.Reconcile(ctx, a.pool, step.Reconciliation{Providers: map[string]step.Probe{a.mailServer(): probe},
			Actor: a.Schema, Settle: 100 * time.Millisecond, Timeout: callLimit})
		if err != nil && !pawl.Retryable(err) && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (g *game) openPayments() (err error) {
	if g.sender, err = newSender(); err != nil {
		return err
	}
	if g.calls, err = openProviders(g.Seed, g.sender.secret); err != nil {
		g.sender.close()
		return err
	}
	g.crew.Listener, g.crew.config.Payments = g.sender.listener, &g.calls.config
	return nil
}

func (g *game) closePayments() {
	g.sender.close()
	g.calls.close()
}

// providers are the bank and the mail server, which misbehave at times. They run in the demo's
// process, which is never killed, so they know what was really done.
type providers struct {
	bank, mail *provider.Server
	config     payments
	closers    []func()
}

// openProviders starts both. The bank remembers keys, the mail server does not.
func openProviders(seed uint64, secret string) (*providers, error) {
	p := &providers{bank: provider.New(time.Hour, liesOf(seed, 12)), mail: provider.New(0, liesOf(seed+1, 24))}
	p.config.Secret = secret
	for _, at := range []struct {
		*provider.Server
		url *string
	}{{p.bank, &p.config.ChargeURL}, {p.mail, &p.config.MailURL}} {
		url, stop, err := serve(at.Server)
		if err != nil {
			p.close()
			return nil, err
		}
		*at.url, p.closers = url, append(p.closers, stop)
	}
	return p, nil
}

func (p *providers) close() {
	for _, stop := range p.closers {
		stop()
	}
}

// serve starts a provider and returns its URL.
func serve(s *provider.Server) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: callLimit}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String() + "/charges", func() {
		s.Release()
		_ = server.Close()
	}, nil
}

// liesOf makes every n-th request fail on average, in different ways. Forgetting a key is not among
// them, because that would be a different provider.
func liesOf(seed uint64, n int) func(int, *http.Request) provider.Lie {
	all := []provider.Lie{provider.TimeOutBefore, provider.TimeOutAfter, provider.CutBefore, provider.CutAfter,
		provider.FailBefore, provider.FailAfter, provider.Conflict}
	return func(request int, _ *http.Request) provider.Lie {
		random := rand.New(rand.NewPCG(seed, uint64(request)))
		if random.IntN(n) > 0 {
			return ""
		}
		return all[random.IntN(len(all))]
	}
}

// made returns the orders that a provider really executed.
func made(s *provider.Server) (orders []checker.Order) {
	for _, c := range s.Charges() {
		o, _ := orderOf([]byte(c.Body)) // an unreadable one becomes an order that was never sent
		orders = append(orders, checker.Order{Key: o.ID, Customer: o.Customer, Cents: o.Cents})
	}
	return orders
}
