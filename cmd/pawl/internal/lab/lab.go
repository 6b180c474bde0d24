package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/internal/testbed/fleet"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// Options of a lab.
type Options struct {
	Workers    int     // number of processes in each camp
	Rate       float64 // orders a second
	Listen     string  // a loopback address
	Actor      string  // name of the user, for the dashboard
	Executable string  // binary of the worker processes
	Note       func(line string)
}

// mostOrders bounds the orders in memory. After that the lab sends no more.
const mostOrders = 100_000

// Validate returns an error about the first option out of bounds.
func (o Options) Validate() error {
	if o.Workers < 1 || o.Workers > 8 {
		return fmt.Errorf("--workers must lie between 1 and 8 for the crash lab, it is %d", o.Workers)
	}
	if !(o.Rate >= 1 && o.Rate <= 200) {
		return fmt.Errorf("--rate must lie between 1 and 200, it is %v", o.Rate)
	}
	return nil
}

const consumerName = "lab"

// The tables have no unique constraint on the key, so that a second effect shows.
const tables = `create schema lab;
create table lab.pawl_effect (id bigint generated always as identity, key pg_catalog.text not null);
create table lab.by_hand_effect (id bigint generated always as identity, key pg_catalog.text not null);
create table lab.processed_messages (key pg_catalog.text primary key)`

type lab struct {
	Options
	server  *postgres.Server
	pool    *pgxpool.Pool
	broker  *broker.SQS
	camps   []*camp
	senders map[string]*pawlsqs.Sender // by camp
	began   time.Time

	mu        sync.Mutex
	sent      int
	paused    bool
	ending    bool      // buttons no longer work
	loseUntil time.Time // acknowledgements are lost until this time
	down      bool      // the database is being restarted
	presses   []press   // the latest presses
	pressed   int
	state     state
	changed   chan struct{} // closed and replaced when state changes
}

// A Report is the result of a lab.
type Report struct {
	Sent    int     `json:"sent"`
	Presses int     `json:"presses"`
	Pawl    tally   `json:"pawl"`
	ByHand  tally   `json:"by_hand"`
	Seconds float64 `json:"seconds"`
}

// OK reports whether the promise was kept.
func (r Report) OK() bool { return r.Pawl.Doubled+r.Pawl.Lost == 0 }

// Run opens the lab until ctx ends, then waits until all orders are settled, and judges. ready gets
// the address with the token and the one without.
func Run(ctx context.Context, o Options, ready func(login, url string) error) (Report, error) {
	l := &lab{Options: o, began: time.Now(), changed: make(chan struct{})}
	defer l.close()
	if err := l.open(ctx); err != nil {
		return Report{}, err
	}
	socket, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return Report{}, err
	}
	l.state = l.look(ctx)
	stop, err := l.serve(socket, ready)
	if err != nil {
		return Report{}, err
	}
	defer stop()
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	go l.produce(working)
	go l.observe(working)
	select {
	case <-ctx.Done():
	case err := <-l.failed():
		return Report{}, err
	case <-l.server.Done():
		return Report{}, errors.New("the private PostgreSQL ended by itself")
	}
	o.Note("no more orders are sent; waiting until the orders in progress are settled")
	return l.settle(), nil
}

func (l *lab) open(ctx context.Context) (err error) {
	l.Note("starting a private PostgreSQL")
	if l.server, err = postgres.Start(ctx, postgres.Options{Durable: true, Log: l.Note, Settings: map[string]string{"max_connections": fmt.Sprint(60 + 60*l.Workers)}}); err != nil {
		return err
	}
	url := l.server.URL("postgres")
	if l.pool, err = pgxpool.New(ctx, url); err != nil {
		return err
	}
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err = migrate.Up(ctx, conn.Conn(), nil); err != nil {
		return err
	}
	if _, err = conn.Exec(ctx, tables); err != nil {
		return err
	}
	if l.broker, err = broker.OpenSQS(ctx, l.faults(), withPawl, byHand); err != nil {
		return err
	}
	l.camps = []*camp{newCamp(withPawl, "lab.pawl_effect", l.Workers), newCamp(byHand, "lab.by_hand_effect", l.Workers)}
	l.senders = map[string]*pawlsqs.Sender{}
	for _, c := range l.camps {
		if l.senders[c.name], err = pawlsqs.OpenSender(ctx, broker.Client(l.broker.Endpoint), c.name, ""); err != nil {
			return err
		}
		if err := l.muster(ctx, c, url); err != nil {
			return err
		}
	}
	return nil
}

// muster starts the workers of a camp, each behind its own proxy.
func (l *lab) muster(ctx context.Context, c *camp, url string) error {
	var urls []string
	for range l.Workers {
		p, through, err := wireproxy.Open(url)
		if err != nil {
			return err
		}
		c.proxies, urls = append(c.proxies, p), append(urls, through)
	}
	c.fleet = fleet.New(l.Executable, WorkerCommand, func(number int) any {
		return workerConfig{Camp: c.name, DatabaseURL: urls[number-1], Endpoint: l.broker.Endpoint}
	}, c.report)
	return c.fleet.Start(ctx, l.Workers)
}

// failed reports a worker of any camp that ended by itself.
func (l *lab) failed() <-chan error {
	first := make(chan error, len(l.camps))
	for _, c := range l.camps {
		go func() { first <- <-c.fleet.Failed() }()
	}
	return first
}

func (l *lab) close() {
	for _, c := range l.camps {
		if c.fleet != nil {
			c.fleet.KillAll()
		}
		for _, p := range c.proxies {
			p.Close()
		}
	}
	if l.broker != nil {
		_ = l.broker.Close()
	}
	if l.pool != nil {
		l.pool.Close()
	}
	if l.server != nil {
		_ = l.server.Stop()
	}
}

// faults observe every delivery and deletion, and lose acknowledgements on request.
func (l *lab) faults() sqstest.Faults {
	return sqstest.Faults{
		Duplicate: func(a sqstest.Arrival) bool {
			if c, _ := l.arrival(a); c != nil {
				c.delivered()
			}
			return false
		},
		LoseDelete: func(a sqstest.Arrival) bool {
			c, key := l.arrival(a)
			if c == nil {
				return false
			}
			l.mu.Lock()
			lose := time.Now().Before(l.loseUntil)
			l.mu.Unlock()
			if lose {
				c.note(key, 0, "the acknowledgement is lost on its way to the queue")
				return true
			}
			c.wasDeleted(key, a.Number)
			return false
		},
	}
}

func (l *lab) arrival(a sqstest.Arrival) (*camp, string) {
	var o order
	if json.Unmarshal([]byte(a.Body), &o) != nil {
		return nil, ""
	}
	for _, c := range l.camps {
		if c.name == a.Queue {
			return c, o.Key
		}
	}
	return nil, ""
}

func (l *lab) produce(ctx context.Context) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / l.Rate))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		idle := l.paused || l.sent >= mostOrders
		l.mu.Unlock()
		if idle {
			continue
		}
		l.mu.Lock()
		l.sent++
		key := orderKey(l.sent)
		l.mu.Unlock()
		for _, c := range l.camps {
			l.send(ctx, c, key)
		}
	}
}

func orderKey(n int) string { return fmt.Sprintf("order-%06d", n) }

func (l *lab) send(ctx context.Context, c *camp, key string) {
	body, err := json.Marshal(order{key})
	if err == nil {
		c.sent(key)
		err = l.senders[c.name].Send(ctx, pawlsqs.Message{Key: key, Payload: body})
	}
	if err != nil && ctx.Err() == nil {
		l.Note("the producer: " + err.Error())
	}
}

// settle wakes frozen workers and waits until all orders are settled, at most a minute.
func (l *lab) settle() Report {
	l.mu.Lock()
	l.ending, l.paused, l.loseUntil = true, true, time.Time{}
	l.mu.Unlock()
	for _, c := range l.camps {
		for _, w := range c.fleet.Workers() {
			c.fleet.Wake(w)
		}
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		s := l.now()
		if len(s.Camps) == 2 && s.Camps[0].Open+s.Camps[1].Open == 0 && s.Quiet > certainly.Seconds()+1 {
			break
		}
	}
	s := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Report{Sent: l.sent, Presses: l.pressed, Seconds: round(time.Since(l.began).Seconds())}
	for _, c := range s.Camps {
		switch c.Name {
		case withPawl:
			r.Pawl = c.tally
		case byHand:
			r.ByHand = c.tally
		}
	}
	return r
}

// Summary is the result in one line.
func (r Report) Summary() string {
	camp := func(name string, t tally) string {
		return fmt.Sprintf("%s: %d effects, %d doubled, %d lost", name, t.Effects, t.Doubled, t.Lost)
	}
	return strings.Join([]string{fmt.Sprintf("%d orders, %d faults", r.Sent, r.Presses), camp("Pawl", r.Pawl), camp("by hand", r.ByHand)}, "; ")
}
