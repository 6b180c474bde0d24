package job

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
)

// Config configures a [Worker]. Only Handlers are required, and Queues if one of them is not of a [Definition]; the zero value of the
// rest is fit for production.
type Config struct {
	// Queues to work on, these and no others. Default the queues of the handlers' definitions (see [Define]), each with the default
	// Concurrency.
	Queues []Queue
	// Handlers of the kinds this worker knows. Jobs of other kinds are left where they are: it never claims them and never
	// decides what becomes of them.
	Handlers []Handler
	// Middleware around every call of a handler, the first outermost.
	Middleware []Middleware
	// Lease is how long this process may stay silent before others take its jobs over. Too short repeats work after a
	// pause; too long delays recovery from a frozen process or a lost network (a killed process is noticed sooner, see
	// Presence). Default 30 s, 1 s to 12 h.
	Lease time.Duration
	// Presence is the evidence that a process has died, before its lease is over.
	Presence Presence
	// Timeout cancels a handler's context. A transaction open for long holds back vacuum for the whole database.
	// Default 30 s.
	Timeout time.Duration
	// Poll is the longest pause between claims of an idle queue. What is enqueued wakes an idle worker; polls find the rest: what becomes
	// due by itself, and everything where Presence is off. Shorter starts that sooner and asks the idle database more often.
	// After the last job the pauses grow from 10 ms up to it, so a busy queue is asked more often. Default 500 ms.
	Poll time.Duration
	// Backoff between the tries of one job.
	Backoff Backoff
	// MaxCrashes is how many process deaths make a dead letter of a job: so many at which nothing else was in hand, or three times
	// as many at which something was. After the first death it begins alone, so a job that kills at once is alone at the others.
	// Fewer end a poison job sooner; more spare healthy jobs where processes are killed often. Default 4, at most 1000.
	MaxCrashes int
	// ShutdownTimeout is how long a stopping worker lets its handlers finish before their contexts are cancelled. Default 25 s,
	// inside the 30 s Kubernetes and ECS give.
	ShutdownTimeout time.Duration
	// Name is shown to operators. Default host name, process id and the first queue.
	Name string
	// Hooks receive what happens.
	Hooks pawl.Hooks
	// MaxConns is how many connections of the pool the worker may take at once; its defaults follow from it. Default all that the pool has.
	// Set it where several parts share a pool. Package service does so by itself.
	MaxConns int
}

// A Queue is one queue to work on.
type Queue struct {
	Name string // 1 to 255 octets
	// Concurrency is how many of its jobs are in hand at once, claimed by this worker and not yet ended. A job of HandleTx
	// takes one connection of the pool while it runs, a batch takes one, a HandleThenTx while it commits, a simple job none; two
	// connections must stay free for heartbeats and claims, or long handlers would starve the lease they run under. Default 4 if there is a HandleTx,
	// or what the pool leaves; else two batches if there is a HandleManyTx or HandleMany; else 32.
	Concurrency int
	// Admit, if not nil, is asked before each claim how many jobs it may take at most; 0 leaves them where they are until the
	// next poll or [Worker.Kick]. It is for a queue whose handlers depend on something that can be away: no attempt is made
	// that would be charged, and nothing is claimed to be given back. It must be quick. Default no limit.
	Admit func() int
}

// Presence configures the one connection a worker keeps beside the pool. It holds a session lock that the server frees
// when the process dies, so that its jobs go on within about two seconds instead of a lease.
type Presence struct {
	// Off works by the lease alone, with no connection beside the pool. Then nothing wakes the worker, and new jobs wait for its next poll.
	Off bool
	// URL of a direct connection, if the pool's goes through a pooler in transaction mode: there a session lock says
	// nothing, and the lease alone decides. Default the settings of the pool.
	URL string
}

const (
	maxBatch       = 500 // job_hold_many and job_finish_many take no more
	defaultBatch   = 100
	defaultSimples = 32
)

// complete checks the configuration, fills in the defaults, and returns what is known of the
// handlers.
func (c *Config) complete(conns int) ([]settings, error) {
	defaulted(&c.Lease, 30*time.Second)
	defaulted(&c.Timeout, 30*time.Second)
	defaulted(&c.Poll, 500*time.Millisecond)
	defaulted(&c.ShutdownTimeout, 25*time.Second)
	if err := c.deriveQueues(); err != nil {
		return nil, err
	}
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = fmt.Sprintf("%.100s/%d", host, os.Getpid())
		if len(c.Queues) > 0 { // workers of one process are told apart
			c.Name = strings.ToValidUTF8(fmt.Sprintf("%s %s", c.Name, c.Queues[0].Name[:min(100, len(c.Queues[0].Name))]), "")
		}
	}
	if c.MaxCrashes < 0 || c.MaxCrashes > 1000 {
		return nil, fmt.Errorf("the limit MaxCrashes must lie between 1 and 1000, it is %d", c.MaxCrashes)
	}
	if c.Lease < time.Second || c.Lease > 12*time.Hour {
		return nil, fmt.Errorf("the Lease must lie between 1s and 12h, it is %v", c.Lease)
	}
	handlers, err := c.completeHandlers()
	if err != nil {
		return nil, err
	}
	return handlers, c.completeQueues(conns, handlers)
}

// settings returns what is known of the handlers, as they were given.
func (c *Config) settings() []settings {
	all := make([]settings, len(c.Handlers))
	for i, h := range c.Handlers {
		if h != nil {
			all[i] = h.settings()
		}
	}
	return all
}

func (c *Config) completeHandlers() ([]settings, error) {
	if len(c.Handlers) == 0 {
		return nil, errors.New("the field Handlers is required: make them with HandleTx or another form, or with a Definition")
	}
	handlers, seen := c.settings(), map[string]bool{}
	for i, h := range handlers {
		switch {
		case h.form == 0:
			return nil, fmt.Errorf("handler %d is empty: make it with HandleTx or another form, or with a Definition", i)
		case len(h.kind) < 1 || len(h.kind) > 255:
			return nil, fmt.Errorf("a kind must have 1 to 255 octets, it is %.300q", h.kind)
		case h.empty:
			return nil, fmt.Errorf("a function of the handler for kind %q is nil", h.kind)
		case seen[h.kind]:
			return nil, fmt.Errorf("two handlers for kind %q", h.kind)
		case h.policy.BatchSize < 0 || h.policy.BatchSize > maxBatch:
			return nil, fmt.Errorf("the BatchSize of kind %q must lie between 1 and %d, it is %d", h.kind, maxBatch, h.policy.BatchSize)
		}
		seen[h.kind] = true
		defaulted(&h.policy.Timeout, c.Timeout)
		defaulted(&h.policy.BatchSize, defaultBatch)
		if h.policy.Backoff == (Backoff{}) {
			h.policy.Backoff = c.Backoff
		}
		handlers[i] = h.wrapped(c.Middleware)
	}
	return handlers, nil
}

// deriveQueues works on the queues of the handlers' definitions, if the configuration names none.
func (c *Config) deriveQueues() error {
	if len(c.Queues) > 0 {
		return nil
	}
	var queues []Queue
	for _, h := range c.settings() {
		if h.queue == "" && h.form != 0 {
			return fmt.Errorf("the field Queues is required: the handler for kind %q is not of a Definition, which would name its queue", h.kind)
		}
		if h.queue != "" && !slices.ContainsFunc(queues, func(q Queue) bool { return q.Name == h.queue }) {
			queues = append(queues, Queue{Name: h.queue})
		}
	}
	c.Queues = queues
	return nil
}

func (c *Config) completeQueues(conns int, handlers []settings) error {
	if len(c.Queues) == 0 {
		return errors.New("the field Queues is required")
	}
	queues, seen := make([]Queue, len(c.Queues)), map[string]bool{}
	for i, q := range c.Queues {
		if len(q.Name) < 1 || len(q.Name) > 255 {
			return fmt.Errorf("a queue must have a name of 1 to 255 octets, it is %.300q", q.Name)
		}
		if seen[q.Name] {
			return fmt.Errorf("queue %q is named twice", q.Name)
		}
		seen[q.Name] = true
		defaulted(&q.Concurrency, c.concurrency(conns, handlers))
		queues[i] = q
	}
	c.Queues = queues
	if need := c.MinConns(); need > conns {
		return fmt.Errorf("the pool has %d connections%s, but the handlers need %d and housekeeping %d: "+
			"set pool_max_conns=%d in the database URL or lower Concurrency", conns, c.limited(), need-housekeeping, housekeeping, need)
	}
	return nil
}

func (c *Config) limited() string {
	if c.MaxConns > 0 {
		return " for this worker (MaxConns)"
	}
	return ""
}

const housekeeping = conns.Housekeeping

// MinConns is the fewest connections of a pool with which the worker can run: one a job of a HandleTx that may be in hand at once, or one a
// queue where Concurrency is left to its default; one if there are only batches and jobs of a HandleThenTx; none for other forms; and 2 for housekeeping. Presence
// takes one beside the pool.
func (c Config) MinConns() int {
	handlers, forms := 0, c.settings()
	switch {
	case has(forms, transactional):
		_ = c.deriveQueues() // of this copy; New says what is missing
		for _, q := range c.Queues {
			handlers += max(1, q.Concurrency)
		}
	case has(forms, batch), has(forms, then):
		handlers = 1
	}
	return handlers + housekeeping
}

// concurrency is the default of one queue.
func (c *Config) concurrency(conns int, handlers []settings) int {
	switch {
	case has(handlers, transactional):
		return max(1, min(4, (conns-housekeeping)/len(c.Queues)))
	case has(handlers, batch), has(handlers, many):
		return 2 * largestBatch(handlers)
	}
	return defaultSimples
}

func has(handlers []settings, f form) bool {
	for _, h := range handlers {
		if h.form == f {
			return true
		}
	}
	return false
}

func largestBatch(handlers []settings) (most int) {
	for _, h := range handlers {
		if h.form == batch || h.form == many {
			most = max(most, h.policy.BatchSize)
		}
	}
	return most
}

func defaulted[T int | time.Duration](option *T, value T) {
	if *option <= 0 {
		*option = value
	}
}
