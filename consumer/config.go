package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/job"
)

// Config configures a [Consumer]. Name, Source and Handler are required; the zero value of the rest is fit for production. Retries and
// limits are the handler's: see [Policy].
type Config struct {
	// Name is the name under which deliveries are remembered: two consumers of one message, with two names, both handle it. 1 to 200
	// octets. If you change it, everything seen is forgotten.
	Name string
	// Source of deliveries.
	Source pawl.Source
	// Handler is called for each delivery: see [HandleTx], [HandleManyTx], [Handle] and [Trigger].
	Handler Handler
	// Middleware runs around every call of the handler, the first outermost. Default none.
	Middleware []Middleware
	// Key names the intent of a delivery. Default its Key; [PayloadKey] for producers that send none. Not with a Trigger.
	Key func(pawl.Delivery) string
	// Fingerprint identifies a delivery's payload. Default: its own, if the source has set it, else that of the payload's octets,
	// [pawl.FingerprintOf]. Give another if the sender changes irrelevant parts on retry, for instance one over
	// [pawl.FingerprintJSON]. Not with a Trigger.
	Fingerprint func(pawl.Delivery) (pawl.Fingerprint, error)
	// Retention says how long a delivery is remembered. Default what the source declares
	// ([pawl.SourceInfo]), else 28 days: the longest an SQS queue and then its dead letter queue
	// keep a message. New refuses less than what the source declares, and wants Forever where that
	// is for ever. Not with a Trigger, which follows the source by itself.
	Retention Retention
	// Keep says which deliveries are kept as they came, in table pawl.delivery. Not with a Trigger.
	Keep Keep
	// Concurrency is how many fresh deliveries are handled at once; each holds one connection of the pool. By default
	// half the pool may sit in handlers, this and RetryConcurrency together, so that handlers which take a second
	// connection cannot starve each other. More is faster if yours never do; two connections must stay for housekeeping.
	// Of a HandleManyTx it is how many batches. In mode StoreFirst it is how many deliveries are worked on at once. A Handle
	// holds no connection, and the default is 32.
	Concurrency int
	// RetryConcurrency is how many stored deliveries are retried at once; in mode StoreFirst and of a Handle, how many are being stored at
	// once. Default an eighth of the pool, at least 1.
	RetryConcurrency int
	// MaxStored is how many stored deliveries of this consumer may be open, all its processes together: to be tried again, in hand, or waiting in
	// their lanes. Dead letters do not count, nor what is held at a sequence gate. From there on nothing is received, so that a broken dependency
	// does not move a whole topic into table pawl.job, and event [pawl.EventReceivePaused] says so, once a minute; stored deliveries are worked on
	// meanwhile. Receiving goes on when a tenth is done. Processes count every few seconds, so what they store until then comes on top. Lower
	// keeps the table small; higher rides out longer outages without a growing queue. Default 100,000, or no bound if the senders of the
	// source wait for each acknowledgement ([pawl.SourceInfo]), since they may never send again. Negative: no bound.
	MaxStored int
	// MaxDead is how many deliveries may become dead letters in a process before it stops
	// receiving, where each that takes effect makes up for ten of them: so a mistake in the
	// configuration does not turn a whole topic into dead letters. Event [pawl.EventReceivePaused]
	// says so, once a minute, with the last reason. From there on one delivery is received at a time,
	// after pauses of 1 s to 30 s, until one takes effect. None is lost, and the order holds. What
	// is in hand when it stops comes on top. Lower stops sooner, also where many bad messages come
	// in a row by nature; higher makes more dead letters. Default 1,000, or no bound if the senders
	// of the source wait for each acknowledgement, as for MaxStored. Negative: no bound.
	MaxDead int
	// Presence is the evidence that a process has died before its lease is over; see [job.Presence].
	Presence job.Presence
	// ShutdownTimeout is how long a stop lets handlers finish. Default 25 s.
	ShutdownTimeout time.Duration
	// Hooks receive what happens.
	Hooks pawl.Hooks
	// MaxConns is how many connections of the pool the consumer may take at once; its defaults follow from it. Default all that the pool
	// has. Set it where several parts share a pool. Package service does so by itself.
	MaxConns int
}

// MinConns is the fewest connections of a pool with which the consumer can run: Concurrency and RetryConcurrency, 1 for each that is left to
// its default, and 2 for housekeeping. The handlers of a Handle hold none. Presence takes one beside the pool.
func (c Config) MinConns() int {
	need := max(1, c.RetryConcurrency) + conns.Housekeeping
	if c.Handler == nil || c.Handler.settings().form != leased {
		need += max(1, c.Concurrency)
	}
	return need
}

// Retention says how long deliveries are remembered: as long as the longest of these. What comes again later than that runs as
// new, unless it says how old it is. Shorter keeps the table smaller: a million rows are about 150 MB with their indexes.
type Retention struct {
	// ClientRetry is how long a sender keeps trying, with the same key.
	ClientRetry time.Duration
	// QueueRedelivery is how long the broker may hand a message out again, its dead letter queue and redrives included.
	QueueRedelivery time.Duration
	// Reconciliation is how far back somebody may send again what seems to be missing.
	Reconciliation time.Duration
	// Audit is how long you want to be able to ask whether a message was seen.
	Audit time.Duration
	// Forever forgets nothing. The table grows without bound.
	Forever bool
}

// Window is the longest of the four, 0 if none is given or nothing is to be forgotten.
func (r Retention) Window() time.Duration {
	if r.Forever {
		return 0
	}
	return max(r.ClientRetry, r.QueueRedelivery, r.Reconciliation, r.Audit)
}

// Keep says which deliveries are kept as they came: as evidence, and to find out later what was sent.
type Keep struct {
	// Mode says which. Default [KeepAll] if the source's deliveries are evidence ([pawl.SourceInfo]), else [KeepFailed].
	Mode KeepMode
	// Retention is how long they are kept. Default 14 days.
	Retention time.Duration
	// Attributes names the attributes that are kept with them. Default those that the source names as evidence, else none.
	Attributes []string
}

// A KeepMode says which deliveries are kept as they came.
type KeepMode int

const (
	KeepDefault KeepMode = iota // as the source says, else KeepFailed
	KeepFailed                  // those whose handler failed, and those that became dead letters
	KeepAll
	KeepOff
)

var errNoHandler = errors.New("the Handler is missing: make one with HandleTx, HandleManyTx, Handle or Trigger")

// complete checks what is configured, fills in the defaults, and returns what is known of handler and source.
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

// fits refuses what the form has no use for.
func (c *Config) fits(f form) error {
	if f != triggered {
		return nil
	}
	for field, given := range map[string]bool{"Key": c.Key != nil, "Fingerprint": c.Fingerprint != nil, "Retention": c.Retention != (Retention{}),
		"Keep": c.Keep.Mode != KeepDefault || c.Keep.Retention != 0 || c.Keep.Attributes != nil} {
		if given {
			return fmt.Errorf("the %s is of the inbox, and a Trigger claims nothing there: leave it out, or use HandleTx", field)
		}
	}
	return nil
}

// complete checks a handler's policy and fills in its defaults.
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
		return fmt.Errorf("the pool has %d connections%s, but Concurrency %d + RetryConcurrency %d + %d for housekeeping need %d: "+
			"set pool_max_conns=%d in the database URL or lower Concurrency", conns, c.limited(), c.Concurrency, c.RetryConcurrency, housekeeping, need, need)
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

// longestHorizon is the longest for which it makes sense to remember by age.
const longestHorizon = 10 * 365 * 24 * time.Hour

// completeInfo checks what a source says of itself against the handler, and fills in the defaults.
func completeInfo(info *pawl.SourceInfo, h settings) error {
	switch {
	case info.ReceiveBatch < 0 || info.ReceiveBatch > maxHint:
		return fmt.Errorf("the source's ReceiveBatch must lie between 1 and %d, it is %d", maxHint, info.ReceiveBatch)
	case info.AckBatch < 0 || info.AckBatch > maxHint:
		return fmt.Errorf("the source's AckBatch must lie between 1 and %d, it is %d", maxHint, info.AckBatch)
	case (info.ReleaseBlocks || info.Cumulative) && h.mode == RetryFromSource:
		return errors.New("the Mode is RetryFromSource, and on this source a delivery that is given back holds up others (SourceInfo.ReleaseBlocks): " +
			"some that fail each time, and no other would be handled; use RetryFromDatabase, or StoreFirst")
	case info.RedeliveryHorizon < 0:
		return fmt.Errorf("the source's RedeliveryHorizon is %v: it must not be negative", info.RedeliveryHorizon)
	case len(info.EvidenceAttributes) > 0 && !info.Evidence:
		return errors.New("the source names EvidenceAttributes, and says that its deliveries are no evidence: set Evidence in its SourceInfo")
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

// completeRetention compares what is to be remembered with what may come again. A Trigger claims
// nothing: of its deliveries the inbox has those that became jobs, for as long as they may come
// again.
func (c *Config) completeRetention(info pawl.SourceInfo, f form) error {
	horizon, window := info.RedeliveryHorizon, c.Retention.Window()
	switch {
	case c.Retention.Forever:
		return nil
	case horizon > longestHorizon && f == triggered:
		c.Retention.Forever = true
	case horizon > longestHorizon:
		return errors.New("the source keeps messages for ever and may deliver each again (its RedeliveryHorizon is pawl.Forever): set Retention.Forever")
	case window == 0 && horizon == 0:
		c.Retention.QueueRedelivery = longestQueue
	case window == 0:
		c.Retention.QueueRedelivery = horizon
	case window < 0 || window < horizon:
		return fmt.Errorf("the Retention is %v, but the source may deliver a message again for %v: what comes after %v would run twice",
			window, horizon, window)
	}
	return nil
}

// completeKeep follows the source, where the configuration does not say what to keep.
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
