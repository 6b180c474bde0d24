package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/internal/testbed/fleet"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/internal/text"
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

// The table of effects has no unique constraint on the key, so that a second effect shows. An order
// is sent to one way by hand only, so they share their tables.
const tables = `create schema lab;
create table lab.effect (id bigint generated always as identity, way pg_catalog.text not null, key pg_catalog.text not null);
create table lab.processed (key pg_catalog.text primary key);
create table lab.claim (key pg_catalog.text primary key, status pg_catalog.text not null default 'pending', claimed_at pg_catalog.timestamptz);
create table lab.lease (key pg_catalog.text primary key, expires_at pg_catalog.timestamptz not null, done bool not null default false)`

type lab struct {
	Options
	server  *postgres.Server
	pool    *pgxpool.Pool
	broker  *broker.SQS
	keys    *keyStore
	camps   []*camp                    // of all ways; two of them stand
	senders map[string]*pawlsqs.Sender // by camp
	began   time.Time
	broken  chan error // gets an error when a worker ended by itself

	choosing  sync.Mutex // one change of the way at a time
	mu        sync.Mutex
	stands    []*camp // whose workers run: Pawl's, and the one beside it
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
	Sent    int      `json:"sent"`
	Presses int      `json:"presses"`
	Pawl    tally    `json:"pawl"`
	Beside  []beside `json:"beside"` // the ways that stood beside it
	Seconds float64  `json:"seconds"`
}

type beside struct {
	Way   string `json:"way"`
	Title string `json:"title"`
	tally
}

// OK reports whether the promise was kept.
func (r Report) OK() bool { return r.Pawl.Doubled+r.Pawl.Lost == 0 }

// Run opens the lab until ctx ends, then waits until all orders are settled, and judges. ready gets
// the address with the token and the one without.
func Run(ctx context.Context, o Options, ready func(login, url string) error) (Report, error) {
	l := newLab(o)
	defer l.close()
	if err := l.open(ctx); err != nil {
		return Report{}, err
	}
	for _, name := range []string{withPawl, byDefault} {
		if err := l.start(ctx, l.campOf(name)); err != nil {
			return Report{}, err
		}
		l.stands = append(l.stands, l.campOf(name))
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
	case err := <-l.broken:
		return Report{}, err
	case <-l.server.Done():
		return Report{}, errors.New("the private PostgreSQL ended by itself")
	}
	o.Note("no more orders are sent; waiting until the orders in progress are settled")
	return l.settle(), nil
}

func newLab(o Options) *lab {
	return &lab{Options: o, began: time.Now(), changed: make(chan struct{}), senders: map[string]*pawlsqs.Sender{}, broken: make(chan error, 1)}
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
	if l.keys, err = openKeyStore(); err != nil {
		return err
	}
	var queues []string
	for _, w := range ways {
		queues = append(queues, w.Name)
		l.camps = append(l.camps, newCamp(w, l.Workers))
	}
	if l.broker, err = broker.OpenSQS(ctx, l.faults(), queues...); err != nil {
		return err
	}
	for _, c := range l.camps {
		if l.senders[c.Name], err = pawlsqs.OpenSender(ctx, broker.Client(l.broker.Endpoint), c.Name, ""); err != nil {
			return err
		}
		if err := l.prepare(c, url); err != nil {
			return err
		}
	}
	return nil
}

// campOf returns the camp of a way, or nil.
func (l *lab) campOf(name string) *camp {
	for _, c := range l.camps {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// standing returns the camps whose workers run.
func (l *lab) standing() []*camp {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.stands)
}

// prepare opens a proxy for each worker of a camp.
func (l *lab) prepare(c *camp, url string) error {
	for range l.Workers {
		p, through, err := wireproxy.Open(url)
		if err != nil {
			return err
		}
		c.proxies, c.urls = append(c.proxies, p), append(c.urls, through)
	}
	return nil
}

// defaults are the settings of the lab's workers.
var defaults = workerConfig{Visibility: visibility, Lease: lease, Concurrency: concurrency}

// start starts the workers of a camp.
func (l *lab) start(ctx context.Context, c *camp) error {
	return l.recruit(c, defaults).Start(ctx, l.Workers)
}

// recruit gives a camp new processes, none of which is started yet.
func (l *lab) recruit(c *camp, config workerConfig) *fleet.Fleet {
	config.Way, config.Endpoint, config.Keys = c.Name, l.broker.Endpoint, l.keys.url
	f := fleet.New(l.Executable, WorkerCommand, func(number int) any {
		one := config
		one.DatabaseURL = c.urls[number-1]
		return one
	}, c.report)
	c.mu.Lock()
	c.fleet = f
	c.mu.Unlock()
	go func() {
		select {
		case l.broken <- <-f.Failed():
		default: // one error is enough
		}
	}()
	return f
}

// choose lets another way stand beside Pawl. The workers of the old one end their orders first.
func (l *lab) choose(ctx context.Context, name string) error {
	next := l.campOf(name)
	if next == nil || name == withPawl {
		return fmt.Errorf("there is no way %q beside Pawl", name)
	}
	l.choosing.Lock()
	defer l.choosing.Unlock()
	l.mu.Lock()
	old, ending := l.stands[1], l.ending
	l.mu.Unlock()
	if ending {
		return errEnding
	}
	if next == old {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // the browser may leave
	if err := l.start(ctx, next); err != nil {
		return err
	}
	l.mu.Lock()
	l.stands = []*camp{l.stands[0], next}
	l.mu.Unlock()
	l.leave(ctx, old)
	return nil
}

// leave ends the workers of a camp. Its orders stay where they are.
func (l *lab) leave(ctx context.Context, c *camp) {
	f := c.crew()
	for _, w := range f.Workers() {
		f.Wake(w)
	}
	if err := f.Drain(ctx); err != nil {
		l.Note(c.Title + ": " + err.Error())
		f.KillAll()
	}
}

func (l *lab) close() {
	for _, c := range l.camps {
		if f := c.crew(); f != nil {
			f.KillAll()
		}
		for _, p := range c.proxies {
			p.Close()
		}
	}
	if l.keys != nil {
		l.keys.close()
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

const ackLost = "the acknowledgement is lost on its way to the queue"

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
				c.note(key, 0, ackLost)
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
	return l.campOf(a.Queue), o.Key
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
		for _, c := range l.standing() {
			l.send(ctx, c, key)
		}
	}
}

func orderKey(n int) string { return fmt.Sprintf("order-%06d", n) }

func (l *lab) send(ctx context.Context, c *camp, key string) {
	body, err := json.Marshal(order{key})
	if err == nil {
		c.sent(key)
		err = l.senders[c.Name].Send(ctx, pawlsqs.Message{Key: key, Payload: body})
	}
	if err != nil && ctx.Err() == nil {
		l.Note("the producer: " + err.Error())
	}
}

// settle waits for settleLimit at most, and for quietLimit if nothing moves.
const settleLimit, quietLimit = 5 * time.Minute, time.Minute

// settle wakes frozen workers, waits until all orders are settled, and judges.
func (l *lab) settle() Report {
	l.mu.Lock()
	l.ending, l.paused, l.loseUntil = true, true, time.Time{}
	l.mu.Unlock()
	l.choosing.Lock() // wait for a change of the way
	defer l.choosing.Unlock()
	for _, c := range l.standing() {
		f := c.crew()
		for _, w := range f.Workers() {
			f.Wake(w)
		}
	}
	for deadline := time.Now().Add(settleLimit); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		s := l.now()
		open := 0
		for _, c := range s.Camps {
			open += c.Open
		}
		if open == 0 && s.Quiet > certainly.Seconds()+1 || s.Quiet > quietLimit.Seconds() {
			break
		}
	}
	last := func(c *camp) tally {
		effects, waiting, err := l.effects(context.Background(), c)
		if err != nil {
			l.Note(c.Title + ": " + err.Error())
		}
		return c.take(effects, waiting)
	}
	r := Report{Pawl: last(l.campOf(withPawl)), Beside: []beside{}, Seconds: round(time.Since(l.began).Seconds())}
	for _, c := range l.camps {
		if c.Name != withPawl && c.crew() != nil {
			r.Beside = append(r.Beside, beside{c.Name, c.Title, last(c)})
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Sent, r.Presses = l.sent, l.pressed
	return r
}

// Summary is the result in one line.
func (r Report) Summary() string {
	parts := []string{text.Plural(r.Sent, "order", "orders") + ", " + text.Plural(r.Presses, "fault", "faults")}
	for _, b := range append([]beside{{Title: "Pawl", tally: r.Pawl}}, r.Beside...) {
		parts = append(parts, fmt.Sprintf("%s: %s, %d doubled, %d lost", b.Title, text.Plural(b.Effects, "effect", "effects"), b.Doubled, b.Lost))
	}
	return strings.Join(parts, "; ")
}
