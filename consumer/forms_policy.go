package consumer

import (
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// Policy sets the retries and the limits of a delivery. Its zero value is fit for production.
type Policy struct {
	// Timeout is when the context of one call is cancelled. If the handler does not return, it
	// keeps its connection, and event error reports it 5 s later. A long transaction holds back
	// vacuum for the whole database. Default 30 s, or 15 min for [Handle], which holds none.
	Timeout time.Duration
	// MaxAttempts is after how many tries a delivery becomes a dead letter. Default 25, 1 to 1000.
	MaxAttempts int
	// Backoff is the pause between tries. Default that of [job.Backoff]: random, up to 1 s after
	// the first failure and up to 10 min later.
	Backoff job.Backoff
	// MaxPayload is the largest payload that is handled, in octets. A larger one becomes a dead
	// letter, with its payload up to 4 MiB. Above that the dead letter has its size and SHA-256
	// instead. Default 1 MiB, at most 4 MiB.
	MaxPayload int
	// LanePolicy is what a dead letter does to later deliveries with its ordering key. Default
	// [job.LaneBlock]: they wait for an operator.
	LanePolicy job.LanePolicy
	// SoloAfter is the receive count from which a delivery without an inbox row may be suspected of
	// killing its process. If a process of this consumer has died since the delivery was sent, the
	// delivery is stored first. It then starts alone, and its crashes are counted. From the same
	// count on, a delivery that finds its Exclusive resource busy is stored too, unsuspected.
	// Default 3. 1 suspects every delivery.
	SoloAfter int
	// MaxCrashes is after how many process deaths a stored delivery becomes a dead letter; see
	// [job.Config]. Default 4, 1 to 1000.
	MaxCrashes int
	// Lease is how long this process may miss heartbeats before another takes over its stored
	// deliveries; see [job.Config]. Default 30 s, 1 s to 12 h.
	Lease time.Duration
}

// TxPolicy is the policy of [HandleTx].
type TxPolicy struct {
	Policy
	// Mode is when a delivery is handled and what retries it. Default [RetryFromDatabase].
	Mode Mode
	// Exclusive names a resource that two handlers of any consumer must not use at once. A second
	// delivery is released or, if it is stored, retried a second later. In the handler's
	// transaction it takes the lock of lock.TryLock with the namespace "consumer". Up to 255
	// octets. Default, and for "": none.
	Exclusive func(pawl.Delivery) string
	// SequenceGate orders effects by the senders' numbers. Not with [StoreFirst]. Default none.
	SequenceGate *SequenceGate
}

// ManyTxPolicy is the policy of [HandleManyTx].
type ManyTxPolicy struct {
	Policy
	// BatchSize is the most deliveries that are handled at once. More is faster, until the
	// transaction takes too long. Default 100, at most 1000.
	BatchSize int
}

// TriggerPolicy is the policy of [Trigger].
type TriggerPolicy struct {
	// Timeout is when the context of one call is cancelled. Default 30 s.
	Timeout time.Duration
}

// A Mode says when a delivery is handled and what retries a failed one.
type Mode int

const (
	// RetryFromDatabase handles a delivery on arrival, in the transaction of its claim. A failed
	// delivery is stored as a job, acknowledged, and retried from the database.
	RetryFromDatabase Mode = iota
	// RetryFromSource handles a delivery on arrival. A failed one leaves nothing in the database
	// and is released to the source, with a delay of a minute. A receiver of webhooks answers 503,
	// and the sender keeps the retry schedule and the dead letters. A failure that is [pawl.Final],
	// or lost the transaction, is stored all the same.
	//
	// New refuses this mode if released deliveries hold up others ([pawl.SourceInfo]): with Kafka,
	// with RabbitMQ, and with NATS unless the consumer's MaxAckPending is -1.
	RetryFromSource
	// StoreFirst stores a delivery as a job, acknowledges it, and handles it from the database. Use
	// it for handlers that take long, and for sources whose redeliveries are expensive.
	StoreFirst
)
