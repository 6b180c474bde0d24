package consumer

import (
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// Policy says how often a delivery is tried and what bounds it. Its zero value is fit for production.
type Policy struct {
	// Timeout cancels the context of one call. A transaction open for long holds back vacuum for the whole database. Default 30 s;
	// 15 min for [Handle], which holds none.
	Timeout time.Duration
	// MaxAttempts is how often one delivery is tried, the first try included, before it becomes a dead letter. Default 25, 1 to 1000.
	MaxAttempts int
	// Backoff between the tries.
	Backoff job.Backoff
	// MaxPayload is the largest payload that is handled, in octets. A larger one becomes a dead
	// letter, with its payload up to 4 MiB. Above that the dead letter has its size and SHA-256
	// instead. Default 1 MiB, at most 4 MiB.
	MaxPayload int
	// LanePolicy is what a dead letter does to the deliveries with its ordering key. Default [job.LaneBlock]: they wait for an
	// operator.
	LanePolicy job.LanePolicy
	// SoloAfter is the receive count from which a delivery without an inbox row may be suspected of killing its process. If a process of
	// this consumer has died since the delivery was sent, the delivery is stored first and begins alone, where its crashes are counted. From
	// the same count on, a delivery that finds its Exclusive resource busy is stored too, unsuspected. Default 3. 1 suspects every
	// delivery.
	SoloAfter int
	// MaxCrashes is how many process deaths make a dead letter of a stored delivery; see [job.Config]. Default 4, 1 to 1000.
	MaxCrashes int
	// Lease is how long this process may stay silent before another takes over the stored deliveries it works on; see [job.Config].
	// Default 30 s, 1 s to 12 h.
	Lease time.Duration
}

// TxPolicy is the policy of [HandleTx].
type TxPolicy struct {
	Policy
	// Mode says when a delivery is handled, and who tries it again. Default [RetryFromDatabase].
	Mode Mode
	// Exclusive names what handlers must not work on at once, whichever their consumer. A second delivery is given back, or, if it has
	// been stored, tried again a second later. "" excludes none. It takes an advisory lock, "consumer" and the name, in the handler's
	// transaction, as SQL's try_lock does. Default none.
	Exclusive func(pawl.Delivery) string
	// SequenceGate lets deliveries take effect in the order of numbers that their senders gave them. Not with [StoreFirst]. Default none.
	SequenceGate *SequenceGate
}

// ManyTxPolicy is the policy of [HandleManyTx].
type ManyTxPolicy struct {
	Policy
	// BatchSize is the most deliveries that are handled at once. More is faster until the transaction is long. Default 100, at most 1000.
	BatchSize int
}

// TriggerPolicy is the policy of [Trigger].
type TriggerPolicy struct {
	// Timeout cancels the context of one call. Default 30 s.
	Timeout time.Duration
}

// A Mode says when a delivery is handled, and who tries again what failed.
type Mode int

const (
	// RetryFromDatabase handles a delivery when it is received, in the transaction of its claim, and acknowledges it after COMMIT. One that
	// failed is stored as a job, acknowledged, and retried from the database.
	RetryFromDatabase Mode = iota
	// RetryFromSource handles a delivery when it is received. One that failed leaves nothing
	// behind, and the source has it again, for a minute before it may hand it out. A receiver of
	// webhooks answers 503, and the sender keeps the schedule and the dead letters. What is
	// [pawl.Final], or took its transaction along, is stored all the same. New refuses it for a
	// source of which a delivery that was given back holds up others ([pawl.SourceInfo]): Kafka,
	// RabbitMQ, and NATS unless the consumer's MaxAckPending is -1.
	RetryFromSource
	// StoreFirst stores a delivery as a job and acknowledges it. It is handled from the database. For handlers that take long, and for
	// sources whose redeliveries are dear.
	StoreFirst
)
