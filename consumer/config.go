package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/ranges"
	"github.com/pawl-go/pawl/job"
)

// Config configures a [Consumer]. Name, Source and Handler are required; the zero value of the rest
// is fit for production. The handler's [Policy] sets its timeout and its retries.
type Config struct {
	// Name is the name under which deliveries are remembered, 1 to 200 octets without control
	// characters. Consumers with different names each handle every message. If you change the name,
	// all deliveries are new.
	Name string
	// Source is where deliveries come from.
	Source pawl.Source
	// Handler is called for each delivery: see [Handler] for its forms.
	Handler Handler
	// Middleware runs around every call of the handler, the first outermost. Default none.
	Middleware []Middleware
	// Key returns the key of a delivery's intent. Default: the delivery's Key. Set [PayloadKey] if
	// producers send no keys. Not with a Trigger.
	Key func(pawl.Delivery) string
	// Fingerprint identifies a delivery's payload. Default: the fingerprint that the source has
	// set, or else [pawl.FingerprintOf] of the payload. If a sender's retries differ in irrelevant
	// parts, leave those parts out, for instance with [pawl.FingerprintJSON]. Not with a Trigger.
	Fingerprint func(pawl.Delivery) (pawl.Fingerprint, error)
	// Retention is how long a delivery is remembered. Default: the horizon that the source declares
	// ([pawl.SourceInfo]), or else 28 days: SQS keeps a message for 14 days at most, and as long
	// again in the dead letter queue. New refuses less than the source declares, and requires
	// Forever if the source declares forever. Not with a Trigger, which follows the source.
	Retention Retention
	// Keep selects the deliveries that are kept, in table pawl.delivery. Not with a Trigger.
	Keep Keep
	// Filter recognizes duplicates with less work of the database, for streams in which most
	// deliveries are duplicates. Default none: most consumers need none. Not with a Trigger.
	Filter Filter
	// Concurrency is how many handlers run at once for deliveries that were not stored before. For
	// a HandleManyTx it counts batches. Each handler holds one connection of the pool, except that
	// of a Handle. Default 32 for a Handle; otherwise this and RetryConcurrency together take half
	// the pool, so that each handler may take a second connection. If yours take none, more is
	// faster. New refuses a pool that does not have two connections more than both.
	//
	// A Handle, and a handler in mode StoreFirst, works on stored deliveries only. Then Concurrency
	// is how many of these are handled at once, and RetryConcurrency how many are stored at once.
	Concurrency int
	// RetryConcurrency is how many stored deliveries are retried at once, but see Concurrency.
	// Default an eighth of the pool, at least 1.
	RetryConcurrency int
	// MaxStored is how many stored deliveries of this consumer may be open, in all its processes
	// together. Open deliveries wait for a retry, are being handled, or wait in their lanes. Dead
	// letters and deliveries held at a sequence gate do not count.
	//
	// The bound keeps a broken dependency from moving a whole topic into table pawl.job. At the
	// bound the consumer stops receiving and works on stored deliveries, until nine tenths of the
	// bound are open. Event [pawl.EventReceivePaused] reports it once a minute. Processes count
	// every few seconds, so the bound may be exceeded by what they store in between.
	//
	// Lower keeps the table small; higher accepts messages through longer outages. Default 100,000,
	// or no bound if senders wait for each acknowledgement ([pawl.SourceInfo].AckAtOnce): if such a
	// sender is refused, it may never send again. Negative: no bound.
	MaxStored int
	// MaxDead keeps a mistake in the configuration from turning a whole topic into dead letters. A
	// process counts its new dead letters, and subtracts ten for each delivery that takes effect,
	// down to 0. At MaxDead it receives one delivery at a time, after pauses of 1 s to 30 s, until
	// one takes effect. No delivery is lost, and the order holds. Event [pawl.EventReceivePaused]
	// reports it once a minute, with the last reason. Deliveries already received may exceed the
	// bound.
	//
	// Lower stops sooner, also on a harmless run of bad messages; higher makes more dead letters.
	// Default 1,000, or no bound if senders wait for acknowledgements. Negative: no bound.
	MaxDead int
	// Presence lets others notice the death of a process before its lease ends: see [job.Presence].
	Presence job.Presence
	// ShutdownTimeout is how long handlers may finish when Run stops. Then their contexts end, and
	// 5 s later they are abandoned. Default 25 s.
	ShutdownTimeout time.Duration
	// Hooks receive events. Default: log to [log/slog.Default].
	Hooks pawl.Hooks
	// MaxConns is how many connections of the pool the consumer may take at once; the defaults of
	// the concurrency fields follow from it. Default: all of the pool. Set it if several parts
	// share a pool without package service, which divides the pool among its parts.
	MaxConns int
}

// MinConns returns the fewest connections of a pool with which the consumer can run: Concurrency,
// RetryConcurrency and 2 for housekeeping. A concurrency left to its default counts as 1. The
// handlers of a Handle hold none. Presence takes one connection outside the pool.
func (c Config) MinConns() int {
	need := max(1, c.RetryConcurrency) + conns.Housekeeping
	if c.Handler == nil || c.Handler.settings().form != leased {
		need += max(1, c.Concurrency)
	}
	return need
}

// Retention is how long deliveries are remembered: the longest of the four durations. A later
// redelivery becomes a dead letter if its timestamp shows its age, and otherwise takes effect
// again. Shorter keeps the table smaller: a million rows are about 150 MB with their indexes.
type Retention struct {
	// ClientRetry is how long a sender keeps trying with the same key.
	ClientRetry time.Duration
	// QueueRedelivery is how long the broker may redeliver, with dead letter queue and redrives.
	QueueRedelivery time.Duration
	// Reconciliation is how far back a sender may resend messages that seem to be missing.
	Reconciliation time.Duration
	// Audit is how long you need to be able to ask whether a message was seen.
	Audit time.Duration
	// Forever disables forgetting. The table grows without bound.
	Forever bool
}

// Window returns the longest of the four durations, or 0 if none is set or if Forever is set.
func (r Retention) Window() time.Duration {
	if r.Forever {
		return 0
	}
	return max(r.ClientRetry, r.QueueRedelivery, r.Reconciliation, r.Audit)
}

// Keep selects the deliveries that are kept as received, as evidence of what was sent.
type Keep struct {
	// Mode is the selection. Default [KeepAll] if the source's deliveries are evidence
	// ([pawl.SourceInfo]), else [KeepFailed].
	Mode KeepMode
	// Retention is how long they are kept. Default 14 days.
	Retention time.Duration
	// Attributes names the attributes kept with them. Default: the source's evidence attributes.
	Attributes []string
}

// A KeepMode selects the deliveries that are kept as received.
type KeepMode int

const (
	KeepDefault KeepMode = iota // KeepAll for evidence, else KeepFailed
	KeepFailed                  // those whose handler failed, and those that became dead letters
	KeepAll                     // all deliveries
	KeepOff                     // none
)

var errNoHandler = errors.New("the Handler is missing: make one with HandleTx, HandleManyTx, HandleSQL, HandleManySQL, Handle or Trigger")

// complete checks the configuration and fills in the defaults.
func (c *Config) complete(conns int) (h settings, info pawl.SourceInfo, err error) {
	if c.Source == nil {
		return h, info, errors.New("the Source is missing")
	}
	if c.Handler == nil {
		return h, info, errNoHandler
	}
	h = c.Handler.settings()
	probe := pawl.Intent{Scope: c.Name, Key: "any", Fingerprint: pawl.FingerprintOf()}
	if err := probe.Validate(); err != nil || len(c.Name) > maxConsumer {
		return h, info, fmt.Errorf("the Name must have 1 to %d octets of UTF-8 without control characters, it is %.300q", maxConsumer, c.Name)
	}
	if err := c.fits(h.form); err != nil {
		return h, info, err
	}
	if err := ranges.NotNegative(*c, "MaxStored", "MaxDead"); err != nil {
		return h, info, err
	}
	if err := h.complete(); err != nil {
		return h, info, err
	}
	h.around(c.Name, c.Middleware)
	if err := c.completeConcurrency(conns, h.form); err != nil {
		return h, info, err
	}
	info = c.Source.Info()
	if err := completeInfo(&info, h); err != nil {
		return h, info, err
	}
	if err := c.completeRetention(info, h.form); err != nil {
		return h, info, err
	}
	c.completeKeep(info)
	if !info.AckAtOnce {
		c.MaxStored, c.MaxDead = cmp.Or(c.MaxStored, defaultStored), cmp.Or(c.MaxDead, defaultDead)
	}
	if c.Key == nil {
		c.Key = func(d pawl.Delivery) string { return d.Key }
	}
	if c.Fingerprint == nil {
		c.Fingerprint = func(d pawl.Delivery) (pawl.Fingerprint, error) { return printOf(d), nil }
	}
	if c.ShutdownTimeout <= 0 {
		c.ShutdownTimeout = 25 * time.Second
	}
	return h, info, nil
}

// fits refuses fields that a Trigger does not use.
func (c *Config) fits(f form) error {
	if f != triggered {
		return nil
	}
	var unused string
	switch {
	case c.Key != nil:
		unused = "Key"
	case c.Fingerprint != nil:
		unused = "Fingerprint"
	case c.Retention != (Retention{}):
		unused = "Retention"
	case c.Keep.Mode != KeepDefault || c.Keep.Retention != 0 || c.Keep.Attributes != nil:
		unused = "Keep"
	case c.Filter != nil:
		unused = "Filter"
	default:
		return nil
	}
	return fmt.Errorf("a Trigger does not use the %s, because your row records what was done, not the inbox: leave it out, or use HandleTx", unused)
}

func (s *settings) complete() error {
	switch {
	case s.tx == nil && s.try == nil && s.trigger == nil:
		return errNoHandler
	case s.mode < RetryFromDatabase || s.mode > StoreFirst:
		return fmt.Errorf("the Mode is RetryFromDatabase, RetryFromSource or StoreFirst, not %d", s.mode)
	case s.MaxPayload < 0 || s.MaxPayload > 4<<20:
		return fmt.Errorf("the MaxPayload must lie between 1 and %d octets, it is %d", 4<<20, s.MaxPayload)
	case s.MaxAttempts < 0 || s.MaxAttempts > 1000:
		return fmt.Errorf("the MaxAttempts must lie between 1 and 1000, it is %d", s.MaxAttempts)
	case s.batchSize < 0 || s.batchSize > maxBatch:
		return fmt.Errorf("the BatchSize must lie between 1 and %d, it is %d", maxBatch, s.batchSize)
	case s.gate != nil && s.mode == StoreFirst:
		return errors.New("a SequenceGate decides when a delivery is received, so it does not go with the Mode StoreFirst: choose RetryFromDatabase")
	}
	if err := ranges.NotNegative(s.Policy); err != nil {
		return err
	}
	if s.form == many && s.batchSize == 0 {
		s.batchSize = 100
	}
	if s.MaxPayload == 0 {
		s.MaxPayload = 1 << 20
	}
	if s.SoloAfter <= 0 {
		s.SoloAfter = 3
	}
	if s.Timeout <= 0 {
		s.Timeout = 30 * time.Second
		if s.form == leased {
			s.Timeout = 15 * time.Minute
		}
	}
	return s.completeGate()
}

func (s *settings) completeGate() error {
	g := s.gate
	if g == nil {
		return nil
	}
	complete := *g
	switch {
	case g.Of == nil || g.Mode != GateLatest && g.Mode != GateStrict:
		return errors.New("a SequenceGate needs the field Of, and the Mode GateLatest or GateStrict")
	case g.HoldLimit < 0 || g.HoldLimit > 1_000_000:
		return fmt.Errorf("the HoldLimit must lie between 1 and 1000000, it is %d", g.HoldLimit)
	}
	if err := ranges.NotNegative(complete); err != nil {
		return fmt.Errorf("the SequenceGate: %w", err)
	}
	if g.HoldTimeout <= 0 {
		complete.HoldTimeout = 5 * time.Minute
	}
	s.gate = &complete
	return nil
}

func (c *Config) completeConcurrency(conns int, f form) error {
	if c.RetryConcurrency <= 0 {
		c.RetryConcurrency = max(1, conns/8)
	}
	if c.Concurrency <= 0 {
		c.Concurrency = max(1, conns/2-c.RetryConcurrency)
		if f == leased {
			c.Concurrency = 32
		}
	}
	if need := c.MinConns(); need > conns {
		parts := fmt.Sprintf("RetryConcurrency %d + %d for housekeeping", c.RetryConcurrency, housekeeping)
		lower := "RetryConcurrency"
		if f != leased {
			parts, lower = fmt.Sprintf("Concurrency %d + %s", c.Concurrency, parts), "Concurrency"
		}
		return fmt.Errorf("the pool has %d connections%s, but %s need %d: set pool_max_conns=%d in the database URL or lower %s",
			conns, c.limited(), parts, need, need, lower)
	}
	return nil
}

const housekeeping = conns.Housekeeping

func (c *Config) limited() string {
	if c.MaxConns > 0 {
		return " for this consumer (MaxConns)"
	}
	return ""
}

// longestHorizon is the longest horizon that counts as finite.
const longestHorizon = 10 * 365 * 24 * time.Hour

// completeInfo checks what a source declares, by itself and against the handler, and fills in the
// defaults.
func completeInfo(info *pawl.SourceInfo, h settings) error {
	switch {
	case info.ReceiveBatch < 0 || info.ReceiveBatch > maxHint:
		return fmt.Errorf("the source's ReceiveBatch must lie between 1 and %d, it is %d", maxHint, info.ReceiveBatch)
	case info.AckBatch < 0 || info.AckBatch > maxHint:
		return fmt.Errorf("the source's AckBatch must lie between 1 and %d, it is %d", maxHint, info.AckBatch)
	case (info.ReleaseBlocks || info.Cumulative) && h.mode == RetryFromSource:
		return errors.New("the Mode is RetryFromSource, and on this source a delivery that is given back holds up others (SourceInfo.ReleaseBlocks): " +
			"a few that fail each time would stop all others; use RetryFromDatabase, or StoreFirst")
	case info.RedeliveryHorizon < 0:
		return fmt.Errorf("the source's RedeliveryHorizon is %v: it must not be negative", info.RedeliveryHorizon)
	case len(info.EvidenceAttributes) > 0 && !info.Evidence:
		return errors.New("the source names EvidenceAttributes without Evidence: set Evidence in its SourceInfo")
	}
	info.ReleaseBlocks = info.ReleaseBlocks || info.Cumulative
	if info.ReceiveBatch == 0 {
		info.ReceiveBatch = defaultBatch
	}
	if info.AckBatch == 0 {
		info.AckBatch = defaultBatch
	}
	return nil
}

// completeRetention fills in the default, and checks that the Retention covers the source's
// horizon. A Trigger claims inbox rows only for deliveries that it stores; these rows follow the
// source.
func (c *Config) completeRetention(info pawl.SourceInfo, f form) error {
	horizon, window := info.RedeliveryHorizon, c.Retention.Window()
	switch {
	case c.Retention.Forever:
		return nil
	case horizon > longestHorizon && f == triggered:
		c.Retention.Forever = true
	case horizon > longestHorizon:
		return errors.New("the source keeps messages forever and may deliver each again (its RedeliveryHorizon is pawl.Forever): set Retention.Forever")
	case window == 0 && horizon == 0:
		c.Retention.QueueRedelivery = longestQueue
	case window == 0:
		c.Retention.QueueRedelivery = horizon
	case window < 0 || window < horizon:
		return fmt.Errorf("the Retention is %v, but the source may deliver a message again for %v: a redelivery after %v would run twice",
			window, horizon, window)
	}
	return nil
}

// completeKeep fills in the defaults from the source.
func (c *Config) completeKeep(info pawl.SourceInfo) {
	if c.Keep.Mode == KeepDefault {
		c.Keep.Mode = KeepFailed
		if info.Evidence {
			c.Keep.Mode = KeepAll
		}
	}
	if c.Keep.Attributes == nil {
		c.Keep.Attributes = info.EvidenceAttributes
	}
	if c.Keep.Retention <= 0 {
		c.Keep.Retention = 14 * 24 * time.Hour
	}
}
