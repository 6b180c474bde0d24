package flow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/job"
)

// Config configures a [Flow]. Consumer, Source and Handler are required; the zero value of the rest is fit for
// production.
type Config struct {
	// Consumer names who has seen a message: two consumers of one message both run. 1 to 200 octets. Changing it
	// forgets everything seen.
	Consumer string
	// Source of deliveries.
	Source pawl.Source
	// Handler applies one delivery in the transaction it is handed. Give exactly one of Handler, BatchHandler, LongHandler and
	// Trigger.
	Handler pawl.Handler
	// BatchHandler applies many deliveries in one transaction. Deliveries with an ordering key or a semantic one come to it one at a time.
	BatchHandler pawl.BatchHandler
	// LongHandler works without a transaction, under a lease; the Mode is Land then.
	LongHandler LongHandler
	// Trigger is for messages that only name a row that exists; see [Trigger]. Nothing is claimed in the inbox then.
	Trigger Trigger
	// Mode says when a delivery is worked on. Default Inline.
	Mode Mode
	// OnError says what becomes of a delivery whose Handler, in mode Inline, failed with what may be tried again. Default [Lands].
	OnError OnError
	// BatchSize is the most deliveries BatchHandler is handed at once. Default 100, at most 1000.
	BatchSize int
	// Key names the intent of a delivery. Default its Key; [BodyKey] for producers that send none.
	Key func(pawl.Delivery) string
	// Exclusive names what handlers must not work on at once, whichever their consumer: a second one is given back, or tried again
	// a second later if it has landed. "" excludes nobody. It takes an advisory lock, "flow" and the name, in the handler's
	// transaction, as SQL's try_lock does. Not for batches and long handlers.
	Exclusive func(pawl.Delivery) string
	// Gate lets deliveries take effect in the order of numbers that their senders gave them. Default none.
	Gate *Gate
	// Keep says which deliveries are kept as they came, in table pawl.delivery. Default all of a source that says they are evidence
	// ([pawl.Evidence]), else those that fail.
	Keep Keep
	// KeepFor is how long. Default 14 days.
	KeepFor time.Duration
	// KeepAttributes names the attributes that are kept with them. Default those that the source names as evidence, else none.
	KeepAttributes []string
	// LanePolicy is what a dead letter does to the deliveries with its ordering key. Default [job.LaneBlock]: they wait for an
	// operator.
	LanePolicy job.LanePolicy
	// Retention says how long a delivery is remembered. Default what the source declares ([pawl.RedeliveryHorizon]), else 28 days:
	// the longest an SQS queue and then its dead letter queue keep a message. New refuses less than what the source declares.
	Retention inbox.Retention
	// Fingerprint identifies a delivery's payload. Default: its own, if the source has set it, else that of the raw body,
	// [pawl.FingerprintOf]. Give another if the sender changes irrelevant parts on retry, for instance one over
	// [pawl.FingerprintJSON].
	Fingerprint func(pawl.Delivery) (pawl.Fingerprint, error)
	// Concurrency is how many fresh deliveries are handled at once; each holds one connection of the pool. By default
	// half the pool may sit in handlers, this and RetryConcurrency together, so that handlers which take a second
	// connection cannot starve each other. More is faster if yours never do; two connections must stay for housekeeping.
	// Of BatchHandler it is how many batches. In mode Land it is how many deliveries are worked on at once; a LongHandler holds
	// no connection, and the default is 32.
	Concurrency int
	// RetryConcurrency is how many landed deliveries are retried at once; in mode Land, how many are being stored at once.
	// Default an eighth of the pool, at least 1.
	RetryConcurrency int
	// Timeout cancels a handler's context. A transaction open for long holds back vacuum for the whole database.
	// Default 30 s; 15 min for a LongHandler, which holds none.
	Timeout time.Duration
	// MaxBody is the largest payload handled, in octets; a larger one goes to the dead letters whole. Default 1 MiB, at
	// most 4 MiB.
	MaxBody int
	// MaxAttempts bounds the tries of one delivery, the first included. Default 25, 1 to 1000.
	MaxAttempts int
	// Backoff between the tries.
	Backoff job.Backoff
	// SoloAfter is the receive count from which a delivery without an inbox row may be suspected of killing its process: if one of
	// this consumer has died since the delivery was sent, it is landed first and begins alone, where its crashes are counted. From
	// the same count on, a delivery that finds its Exclusive resource busy is landed too, unsuspected. Default 3. 1 suspects every
	// delivery.
	SoloAfter int
	// MaxCrashes is how many process deaths make a dead letter of a landed delivery; see [job.Config]. Default 4, at most 1000.
	MaxCrashes int
	// Lease of landed deliveries being retried; see [job.Config]. Default 30 s.
	Lease time.Duration
	// Presence is the evidence that a process has died before its lease is over; see [job.Presence].
	Presence job.Presence
	// Drain is how long a stop lets handlers finish. Default 25 s.
	Drain time.Duration
	// Name is shown to operators, as in [job.Config]. Default host name and process id.
	Name string
	// Hooks receive what happens.
	Hooks pawl.Hooks

	followsSource bool // the Retention is what the source declares
}

// A Mode says when a delivery is worked on.
type Mode int

const (
	// Inline works in the transaction of the claim, and acknowledges after its COMMIT.
	Inline Mode = iota
	// Land stores the delivery as a job and acknowledges; it is worked on from the database, under a lease. For handlers that take
	// long, and for sources whose redeliveries are dear.
	Land
)

// OnError says who tries again what failed.
type OnError int

const (
	// Lands: the delivery becomes a job, is acknowledged, and retried from the database.
	Lands OnError = iota
	// SourceRetries: nothing of it stays, and the source has it again, for a minute before it may hand it out; a receiver of webhooks answers
	// 503, and the sender keeps the schedule and the dead letters. What is [pawl.Final], or took its transaction along, lands all the same.
	SourceRetries
)

// Keep says which deliveries are kept as they came: as evidence, and for whoever must find out later what was sent.
type Keep int

const (
	KeepDefault Keep = iota // as the source says, else KeepFailed
	KeepFailed              // those whose handler failed, and those that became dead letters
	KeepAll
	KeepOff
)

// BodyKey is the key that the producer sent, or else the SHA-256 of the body: for [Config.Key] where producers send no key. Two
// messages that mean two things and read the same are one then.
func BodyKey(d pawl.Delivery) string {
	if d.Key != "" {
		return d.Key
	}
	return "sha256:" + pawl.FingerprintOf(d.Body).String()
}

// printOf is the fingerprint of a delivery's payload, unless the configuration has another.
func printOf(d pawl.Delivery) pawl.Fingerprint {
	if d.Fingerprint != (pawl.Fingerprint{}) {
		return d.Fingerprint
	}
	return pawl.FingerprintOf(d.Body)
}

func (c *Config) complete(conns int) error {
	if err := c.completeHandler(); err != nil {
		return err
	}
	probe := pawl.Intent{Scope: c.Consumer, Key: "any", Fingerprint: pawl.FingerprintOf()}
	if err := probe.Validate(); err != nil || len(c.Consumer) > maxConsumer {
		return fmt.Errorf("the Consumer must have 1 to %d octets of UTF-8 without control characters, it is %.300q", maxConsumer, c.Consumer)
	}
	if c.MaxBody < 0 || c.MaxBody > 4<<20 {
		return fmt.Errorf("the limit MaxBody must lie between 1 and %d octets, it is %d", 4<<20, c.MaxBody)
	}
	if c.MaxAttempts < 0 || c.MaxAttempts > 1000 {
		return fmt.Errorf("the limit MaxAttempts must lie between 1 and 1000, it is %d", c.MaxAttempts)
	}
	if c.BatchSize < 0 || c.BatchSize > maxBatch {
		return fmt.Errorf("the BatchSize must lie between 1 and %d, it is %d", maxBatch, c.BatchSize)
	}
	if err := c.completeConcurrency(conns); err != nil {
		return err
	}
	if err := c.completeRetention(); err != nil {
		return err
	}
	if err := c.completeGate(); err != nil {
		return err
	}
	c.completeKeep()
	if c.KeepFor <= 0 {
		c.KeepFor = 14 * 24 * time.Hour
	}
	if c.Key == nil {
		c.Key = func(d pawl.Delivery) string { return d.Key }
	}
	if c.Fingerprint == nil {
		c.Fingerprint = func(d pawl.Delivery) (pawl.Fingerprint, error) { return printOf(d), nil }
	}
	if c.MaxBody == 0 {
		c.MaxBody = 1 << 20
	}
	if c.SoloAfter <= 0 {
		c.SoloAfter = 3
	}
	if c.Drain <= 0 {
		c.Drain = 25 * time.Second
	}
	return nil
}

// completeHandler checks that there is one handler, and makes the others' calls those of Handler.
func (c *Config) completeHandler() error {
	given := 0
	for _, is := range []bool{c.Handler != nil, c.BatchHandler != nil, c.LongHandler != nil, c.Trigger != nil} {
		if is {
			given++
		}
	}
	switch {
	case c.Source == nil || given != 1:
		return errors.New("the field Source and exactly one of Handler, BatchHandler, LongHandler and Trigger are required")
	case c.Mode != Inline && c.Mode != Land:
		return fmt.Errorf("the Mode is Inline or Land, not %d", c.Mode)
	case c.Mode == Land && (c.BatchHandler != nil || c.Trigger != nil):
		return errors.New("the Mode Land goes with Handler or LongHandler")
	case c.OnError != Lands && (c.OnError != SourceRetries || c.Handler == nil || c.Mode != Inline):
		return errors.New("the value SourceRetries of OnError goes with Handler, and the Mode Inline")
	case c.Exclusive != nil && c.Handler == nil:
		return errors.New("the field Exclusive goes with Handler")
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
		if c.LongHandler != nil {
			c.Timeout = 15 * time.Minute
		}
	}
	if c.LongHandler != nil {
		c.Mode = Land
	}
	c.traceHandlers()
	if c.BatchHandler != nil {
		if c.BatchSize == 0 {
			c.BatchSize = 100
		}
		batch := c.BatchHandler
		c.Handler = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error { return batch(ctx, tx, []pawl.Delivery{d}) }
	}
	return nil
}

func (c *Config) completeConcurrency(conns int) error {
	if c.RetryConcurrency <= 0 {
		c.RetryConcurrency = max(1, conns/8)
	}
	if c.Concurrency <= 0 {
		c.Concurrency = max(1, conns/2-c.RetryConcurrency)
		if c.LongHandler != nil {
			c.Concurrency = 32
		}
	}
	need := c.Concurrency + c.RetryConcurrency + serviceConns
	if c.LongHandler != nil {
		need = c.RetryConcurrency + serviceConns
	}
	if need > conns {
		return fmt.Errorf("the pool has %d connections, but Concurrency %d + RetryConcurrency %d + %d for housekeeping need %d: "+
			"set pool_max_conns=%d in the database URL or lower Concurrency", conns, c.Concurrency, c.RetryConcurrency, serviceConns, need, need)
	}
	return nil
}
