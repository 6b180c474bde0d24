package pawl

import (
	"context"
	"math"
	"time"

	"github.com/pawl-go/pawl/internal/receipt"
)

// A Delivery is one arrival of a message. One intent may arrive many times, under many message ids.
type Delivery struct {
	// Key names the intent; the sender chooses it. If it is empty and the consumer's configuration
	// finds no key, the message becomes a dead letter with its payload. Pawl never guesses a key.
	Key string
	// KeyFault says why Key is empty, if the transport knows.
	KeyFault string
	// Fault is set if a function of the source's configuration panicked on the message. Such a
	// message becomes a dead letter with its payload and the panic, even if it has keys.
	Fault error
	// SemanticKey is a second name of the intent, for senders that announce one thing under two
	// keys. The first delivery with it takes effect. Others are duplicates, also with another
	// payload. Empty: none.
	SemanticKey string
	// Fingerprint is the payload's fingerprint, if the transport knows which parts change on a
	// resend. Zero: the consumer's configuration decides.
	Fingerprint Fingerprint
	// MessageID is the transport's id, for people and logs. A resend or a redrive has another one.
	MessageID string
	// OrderingKey names the sequence that the delivery belongs to, such as an account; SQS calls it
	// message group id. Deliveries with the same key take effect one at a time, in the order
	// received, also when one fails. Empty: no order.
	OrderingKey string
	// Payload is the exact octets received.
	Payload []byte
	// Attributes are the message's own headers.
	Attributes map[string]string
	// Receives counts the transport's deliveries of this message, this one included. 0: not known.
	Receives int
	// Log names the log and partition that hold the message ("orders/3"), and Offset its position.
	// A log keeps delivered messages, so an operator can find the message again by both. Log is
	// empty for a queue, which deletes acknowledged messages.
	Log    string
	Offset int64
	// SentAt is the transport's time of acceptance. Zero, or outside 1970 to 9999: not known.
	SentAt time.Time
	// ProducedAt is the producer's time of creation. Zero, or outside 1970 to 9999: not known. At
	// some brokers a redrive changes SentAt, but never ProducedAt.
	ProducedAt time.Time
	// VerifiedBy names what verified the sender, such as a signature's key id. At most 255 octets.
	VerifiedBy string
	// Handle belongs to the transport, which needs it to acknowledge or release this delivery.
	Handle any
}

// A Receipt proves that the database holds the outcome of a delivery. Only Pawl's commit step makes
// a valid one, so a message is acknowledged only after its transaction commits.
type Receipt struct {
	handle any
	valid  bool
}

// Valid reports whether the receipt came from a commit. A source refuses an invalid one.
func (r Receipt) Valid() bool { return r.valid }

// Handle returns the [Delivery.Handle] that the source set.
func (r Receipt) Handle() any { return r.handle }

func init() { receipt.Register(func(handle any) any { return Receipt{handle: handle, valid: true} }) }

// A Source receives deliveries from a broker. It is the smallest interface that a broker needs.
type Source interface {
	// Receive waits, within the source's poll time, for up to max deliveries (max ≥ 1). It may
	// return none. Until Ack or Release, the source hides each delivery from other receivers as far
	// as the broker can. While a message with an OrderingKey is out, or waits for the delay of its
	// Release, no later message of that key is received.
	//
	// Hours may pass between two calls, while the database is down or too many deliveries are
	// stored. After ctx ends, Receive returns what it holds or an error, and takes nothing more. A
	// stopping consumer calls it once more with the ended ctx, so that the source can end its
	// requests.
	Receive(ctx context.Context, max int) ([]Delivery, error)
	// Ack removes messages whose outcome the database holds. If it fails, the consumer counts and
	// reports the failure; the message returns and is absorbed as a duplicate. Ack refuses receipts
	// that are not [Receipt.Valid]. The source may tell the broker later: in a log, once all
	// earlier messages are acknowledged, and at the latest in [Finisher.Finish].
	Ack(ctx context.Context, rs ...Receipt) error
	// Release returns deliveries without acknowledging them. They come again after about delay, as
	// precisely as the transport can, and may come to this receiver only, while it lives.
	Release(ctx context.Context, delay time.Duration, ds ...Delivery) error
	// Info describes the source. The zero SourceInfo claims nothing. A consumer calls it when it is
	// made and then once a minute. Info may ask the broker, for up to 10 s.
	Info() SourceInfo
}

// A Finisher is a [Source] that owns more than its deliveries: a group membership, a channel or a
// connection. Closing that while deliveries are being settled would redeliver them.
type Finisher interface {
	Source
	// Finish ends the source. A consumer calls it once, last, also if it could not start, and
	// allows 10 s. All receipts were passed to Ack before, and unsettled deliveries to Release or
	// abandoned. Only Info and StillHeld may run beside it. Finish sends outstanding
	// acknowledgements to the broker, gives up abandoned deliveries, and leaves. It returns soon
	// after ctx ends. Then Ack and Release return an error, StillHeld returns false, and Info still
	// answers.
	Finish(ctx context.Context) error
}

// A Revocable is a [Source] whose broker may take back deliveries before they are started, such as
// those of a partition that moves to another group member.
type Revocable interface {
	Source
	// StillHeld reports whether this receiver still holds a delivery, and records that work on it
	// begins. A consumer calls it once for each delivery, right before it opens the transaction or
	// calls a handler without one. It must be safe for concurrent use, and must not ask the broker.
	//
	// After true the source keeps the delivery until Ack or Release, as far as the broker allows: a
	// move of the partition waits for it. After false the consumer drops the delivery without Ack
	// or Release. It then asks at once for each delivery of the same OrderingKey that waits behind
	// it. It drops the lost ones and releases the held ones, so that none overtakes it.
	//
	// A delivery passed to Release without StillHeld may be gone. Then Release does nothing for it.
	StillHeld(d Delivery) bool
}

// An Identifier is a [Source] whose configuration finds the identity of a message, such as its key.
// When an operator retries a delivery that could not be identified, the consumer calls Identify,
// because the configuration may have been corrected.
type Identifier interface {
	Source
	// Identify returns an earlier delivery as Receive would make it now. d holds what was stored:
	// Payload, Attributes, MessageID, Log, Offset, SentAt, ProducedAt and VerifiedBy, and the Key,
	// SemanticKey, Fingerprint and OrderingKey found then. Fields that cannot be found from these
	// stay as they are. Identify must be safe for concurrent use, and must not ask the broker.
	Identify(d Delivery) Delivery
}

// Forever is the RedeliveryHorizon of a source that never deletes messages.
const Forever time.Duration = math.MaxInt64

// SourceInfo describes a [Source] to its consumer. Later changes count for RedeliveryHorizon only.
type SourceInfo struct {
	// RedeliveryHorizon is how long after its first delivery a message may come again, including
	// dead letter queues and redrives. A consumer must remember its key as long. 0: not known. A
	// source that never deletes messages returns [Forever].
	RedeliveryHorizon time.Duration
	// Evidence says that deliveries prove their sender. By default a consumer then keeps them all.
	Evidence bool
	// EvidenceAttributes names the attributes kept with the evidence. It requires Evidence.
	EvidenceAttributes []string
	// AckAtOnce says that a sender waits for each acknowledgement, and may never send again. The
	// consumer then acknowledges at once, and does not bound stored deliveries by default.
	// Otherwise a receipt waits up to 20 ms, so that several go in one call.
	AckAtOnce bool
	// ReceiveBatch is how many deliveries a consumer asks for at once, 1 to 10,000, or more if its
	// handler takes larger batches. One batch waits in memory for a free handler. Up to 100
	// deliveries, or two batches, may wait behind others of their OrderingKey. Default 10.
	ReceiveBatch int
	// AckBatch is how many receipts go in one call of Ack, 1 to 10,000. Default 10.
	AckBatch int
	// ReleaseBlocks says that a released delivery holds up others until it is acknowledged, as
	// where it counts against a prefetch limit. Enough failing deliveries would then stop all
	// others. So a consumer refuses mode RetryFromSource, and stores deliveries that find their
	// Exclusive resource busy or whose Trigger fails. It releases, for up to 2 s, only deliveries
	// that another transaction handles, and all that arrive while the database is unavailable.
	ReleaseBlocks bool
	// Cumulative says that an acknowledgement covers all earlier messages, as an offset does. A
	// released delivery then holds up acknowledgements of later ones, so ReleaseBlocks follows.
	Cumulative bool
}
