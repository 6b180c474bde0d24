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
	"github.com/pawl-go/pawl/internal/ranges"
)

// Config configures a [Worker]. Handlers are required. Queues are required if a handler does not
// come from a [Definition]. The zero value of each other field is fit for production.
type Config struct {
	// Queues to work on. Default the queues of the handlers' definitions (see [Define]), each with
	// the default Concurrency.
	Queues []Queue
	// Handlers has one handler for each kind. This worker never claims or dead-letters jobs of
	// other kinds.
	Handlers []Handler
	// Middleware runs around every call of a handler, the first outermost.
	Middleware []Middleware
	// Lease is how long this process may miss heartbeats before other workers take over its jobs.
	// Too short repeats work after a pause. Too long delays recovery from a frozen process or a
	// lost network. A killed process is noticed sooner; see Presence. Default 30 s, 1 s to 12 h.
	Lease time.Duration
	// Presence detects that a process has died before its lease ends. Default on.
	Presence Presence
	// Timeout cancels a handler's context. A handler that does not return within 5 s more is
	// abandoned, and its attempt has failed. Long transactions hold back vacuum. Default 30 s.
	Timeout time.Duration
	// Poll is the longest pause between claims of an idle queue. An enqueue wakes an idle worker.
	// Polls find jobs whose time has come, and all jobs if Presence is off. Shorter starts those
	// sooner and queries an idle database more often. After the last job, pauses grow from 10 ms to
	// Poll, so a busy queue is polled more often. Default 500 ms.
	Poll time.Duration
	// Backoff is the wait between the attempts of one job. Default that of [Backoff].
	Backoff Backoff
	// MaxCrashes is the number of process deaths, while the job ran alone, that make it a dead
	// letter. In total, three times as many make it one. After the first death the job starts
	// alone. Fewer end a poison job sooner. More spare healthy jobs where processes are killed
	// often. Default 4, at most 1000.
	MaxCrashes int
	// ShutdownTimeout is how long a stopping worker waits for its handlers before it cancels their
	// contexts. The default of 25 s fits in the 30 s that Kubernetes and ECS give.
	ShutdownTimeout time.Duration
	// Name is shown to operators. Default the host name, the process id and the first queue. Up to
	// 255 octets.
	Name string
	// Hooks receive the worker's events. Default: log to [log/slog.Default].
	Hooks pawl.Hooks
	// MaxConns is the most connections of the pool that the worker uses at once. Set it if several
	// parts share a pool; package service sets it. Default all of the pool.
	MaxConns int
}

// A Queue is one queue to work on.
type Queue struct {
	// Name of the queue, 1 to 255 octets.
	Name string
	// Concurrency is the most jobs of the queue that this worker has claimed and not yet ended. A
	// job of HandleTx uses one connection of the pool while it runs, and so does a batch of
	// HandleManyTx. A job of HandleThenTx uses one during its commit, and the simple forms use
	// none. Two connections must stay free for heartbeats and claims. Default 4 with a HandleTx, or
	// what the pool leaves. Otherwise two batches with a HandleManyTx or HandleMany, or else 32.
	Concurrency int
	// Admit, if not nil, is called before each claim and returns the most jobs it may take. 0
	// leaves the jobs until the next poll or [Worker.Kick]. Use it if the handlers need something
	// that can be unavailable: no attempt is charged, and no job is claimed only to be released. It
	// must return quickly. Default no limit.
	Admit func() int
}

// Presence configures a worker's one connection beside the pool. It holds a session lock that the
// server frees when the process dies. The process's jobs then continue within about two seconds,
// without waiting for the lease.
type Presence struct {
	// Off uses the lease alone, without a connection beside the pool. New jobs then wait for the
	// next poll, because nothing wakes the worker.
	Off bool
	// URL is a direct connection, if the pool connects through a pooler in transaction mode. There,
	// session locks do not work and the lease alone decides. Default the settings of the pool.
	URL string
}

const (
	maxBatch       = 500 // the limit of job_hold_many and job_finish_many
	defaultBatch   = 100
	defaultSimples = 32
)

// complete checks the configuration, fills in the defaults and returns the handlers' settings.
func (c *Config) complete(conns int) ([]settings, error) {
	if err := ranges.NotNegative(*c); err != nil {
		return nil, err
	}
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
		if len(c.Queues) > 0 { // distinguishes the workers of one process
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

// settings returns the handlers' settings, unchanged.
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
		if err := ranges.NotNegative(h.policy); err != nil {
			return nil, fmt.Errorf("the policy of kind %q: %w", h.kind, err)
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

// deriveQueues sets Queues from the handlers' definitions if it is empty.
func (c *Config) deriveQueues() error {
	if len(c.Queues) > 0 {
		return nil
	}
	var queues []Queue
	for _, h := range c.settings() {
		if h.queue == "" && h.form != 0 {
			return fmt.Errorf("the field Queues is required: the handler for kind %q does not come from a Definition, which has a queue", h.kind)
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

// MinConns is the smallest pool with which the worker can run. Housekeeping needs 2 connections.
// With a HandleTx, each queue needs its Concurrency, or 1 by default. Otherwise a HandleManyTx or a
// HandleThenTx needs 1. The presence connection is not from the pool.
func (c Config) MinConns() int {
	handlers, forms := 0, c.settings()
	switch {
	case has(forms, transactional):
		_ = c.deriveQueues() // on this copy; NewWorker reports the error
		for _, q := range c.Queues {
			handlers += max(1, q.Concurrency)
		}
	case has(forms, transactionalMany), has(forms, then):
		handlers = 1
	}
	return handlers + housekeeping
}

// concurrency returns the default Concurrency of one queue.
func (c *Config) concurrency(conns int, handlers []settings) int {
	switch {
	case has(handlers, transactional):
		return max(1, min(4, (conns-housekeeping)/len(c.Queues)))
	case has(handlers, transactionalMany), has(handlers, many):
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
		if h.form == transactionalMany || h.form == many {
			most = max(most, h.policy.BatchSize)
		}
	}
	return most
}

func defaulted[T int | time.Duration](option *T, value T) {
	if *option == 0 {
		*option = value
	}
}
