package step_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/smtp"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

// example returns a database with one job and a function that claims it, each time as a new worker.
func example() (example *pgtest.Example, pool *pgxpool.Pool, claim func() job.Job) {
	example = &pgtest.Example{}
	pool = pawltest.DB(example)
	e, err := job.Enqueue(context.Background(), pool, job.Request{Queue: "pay", Kind: "payment"})
	if err != nil {
		panic(err)
	}
	return example, pool, func() job.Job {
		ctx := context.Background()
		if _, err := pool.Exec(ctx, "update pawl.job set status = 'pending', claimed_by = null, lease_expires_at = null"); err != nil {
			panic(err)
		}
		j := job.Job{ID: e.ID, Queue: "pay", Kind: "payment"}
		if err := pool.QueryRow(ctx, "select c.fence, c.created_at from pawl_v1.job_claim_id($1, null) as c", e.ID).Scan(&j.Fence, &j.CreatedAt); err != nil {
			panic(err)
		}
		return j
	}
}

var silent = pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}

// The reply to a payment is lost. The next attempt's request is dropped because of its key.
func ExampleRun() {
	ctx := context.Background()
	fixture, pool, claim := example()
	defer fixture.End()
	provider := pawltest.NewProvider(fixture, time.Hour, func(n int, _ *http.Request) pawltest.Lie {
		if n == 0 {
			return pawltest.CutAfter
		}
		return ""
	})
	client := &http.Client{Transport: &step.Transport{}}
	pay := func(j job.Job) {
		payment := step.Step{Name: "charge", Recovery: step.Keyed(24 * time.Hour), Request: "1250 EUR", Provider: "stripe", Hooks: silent}
		made, err := step.Run(ctx, pool, j, payment, func(ctx context.Context, c step.Call) (pawltest.Charge, error) {
			made, err := charge(ctx, client, provider.URL, "1250 EUR")
			c.Reference(made.ID)
			return made, err
		})
		fmt.Println(made.ID, err != nil)
	}

	pay(claim()) // no reply
	pay(claim()) // the second attempt
	pay(claim()) // and a third, which reads the stored result
	fmt.Println(len(provider.Charges()), "charge in", provider.Requests(), "requests")
	// Output:
	//  true
	// ch_1 false
	// ch_1 false
	// 1 charge in 2 requests
}

// After an unknown outcome the step is not repeated. The provider is asked, and the step settled.
func ExampleReconcile() {
	ctx := context.Background()
	fixture, pool, claim := example()
	defer fixture.End()
	payment := step.Step{Name: "charge", Recovery: step.AtMostOnce(), Provider: "bank", Timeout: 500 * time.Millisecond, Hooks: silent}
	transfer := func(context.Context, step.Call) (string, error) { return "", errors.New("connection reset") }

	_, err := step.Run(ctx, pool, claim(), payment, transfer)
	fmt.Println("unknown:", errors.Is(err, pawl.ErrOutcomeUnknown))

	bank := step.Reconciliation{Settle: time.Millisecond, Providers: map[string]step.Probe{
		"bank": func(_ context.Context, c step.Call) (step.ProbeResult, any, error) {
			return step.Executed, "transfer 17", nil // the bank has a transfer under c.Key()
		},
	}}
	done, err := step.Reconcile(ctx, pool, bank)
	// Until payment.Timeout has passed, the request may still be on its way.
	for err == nil && done.Executed == 0 {
		done, err = step.Reconcile(ctx, pool, bank)
	}
	fmt.Println("executed:", done.Executed, err)

	result, err := step.Run(ctx, pool, claim(), payment, transfer)
	fmt.Println(result, err)
	// Output:
	// unknown: true
	// executed: 1 <nil>
	// transfer 17 <nil>
}

// An SMTP server knows no keys, but a mailbox can be searched. The connection breaks after the mail
// was accepted. The second attempt finds it and sends nothing.
func Example_alreadySent() {
	ctx := context.Background()
	fixture, pool, claim := example()
	defer fixture.End()
	server := newMailServer()
	defer server.close()
	payment := step.Step{Name: "receipt", Timeout: time.Second, Hooks: silent, Recovery: step.Checked(func(_ context.Context, c step.Call) (step.ProbeResult, any, error) {
		if server.has("<" + c.Key() + "@shop.example>") { // IMAP: SEARCH HEADER Message-ID
			return step.Executed, nil, nil
		}
		return step.NotExecuted, nil, nil
	}, time.Millisecond)}
	for range 2 {
		_, err := step.Run(ctx, pool, claim(), payment, func(_ context.Context, c step.Call) (any, error) {
			mail := "Message-ID: <" + c.Key() + "@shop.example>\r\nSubject: Thank you\r\n\r\nPaid.\r\n"
			return nil, smtp.SendMail(server.address, nil, "shop@shop.example", []string{"ann@example.com"}, []byte(mail))
		})
		fmt.Println(err == nil, server.count())
	}
	// Output:
	// false 1
	// true 1
}

// A mailServer accepts mail by SMTP and hangs up instead of confirming it.
type mailServer struct {
	listener net.Listener
	address  string
	mu       sync.Mutex
	mails    []string
}

func newMailServer() *mailServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s := &mailServer{listener: l, address: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.serve(c)
		}
	}()
	return s
}

func (s *mailServer) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	r := textproto.NewReader(bufio.NewReader(c))
	fmt.Fprint(c, "220 ready\r\n")
	for {
		line, err := r.ReadLine()
		if err != nil {
			return
		}
		if line != "DATA" {
			fmt.Fprint(c, "250 fine\r\n")
			continue
		}
		fmt.Fprint(c, "354 go on\r\n")
		if mail, err := r.ReadDotBytes(); err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mails = append(s.mails, string(mail))
		}
		return
	}
}

func (s *mailServer) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(strings.Join(s.mails, "\n"), id)
}

func (s *mailServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mails)
}

func (s *mailServer) close() { _ = s.listener.Close() }
