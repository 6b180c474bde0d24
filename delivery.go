package pawl

import (
	"context"
	"math"
	"time"

	"github.com/pawl-go/pawl/internal/receipt"
)

// A Delivery is one arrival of a message. The same intent may arrive many times, under many message ids.
type Delivery struct {
	// Key names the intent, chosen by the sender. Empty means the message carries none: it is dead-lettered with
	// its payload, never guessed at, unless the consumer's configuration has another key for it.
	Key string
	// KeyFault says why there is no Key, where the transport knows.
	KeyFault string
	// Fault is why the source could not read the message: a function of its configuration panicked
	// on it. Such a message becomes a dead letter with its payload and the panic, whatever other
	// keys there are. Nil for a message that was read.
	Fault error
	// SemanticKey is a second name of the intent, for senders that may announce one thing under two keys: whatever takes effect under it
	// first, the others are duplicates. Their payloads may differ. Empty: there is none.
	SemanticKey string
	// Fingerprint is that of the payload, where the transport knows what its senders change when they send again. Zero: the
	// consumer's configuration decides.
	Fingerprint Fingerprint
	// MessageID is the transport's own id, for people and logs. A resend or a redrive has another one.
	MessageID string
	// OrderingKey names what the order of deliveries is about, such as an account; SQS calls it message group id. Deliveries with
	// the same one take effect one at a time, in the order received, also when one of them fails. Empty: in no order.
	OrderingKey string
	// Payload is the exact octets received.
	Payload []byte
	// Attributes are the message's own headers.
	Attributes map[string]string
	// Receives counts how often the transport handed this message out, this time included; 0 if it does not say.
	Receives int
	// Log names the log that the message is in, with its partition ("orders/3"), and Offset its place there. A log keeps what was
	// delivered, so an operator finds the message again by both. Log is empty for a queue, which forgets what is acknowledged.
	Log    string
	Offset int64
	// SentAt is when the transport accepted the message, by its clock; zero, or not within 1970 to
	// 9999, if it does not say.
	SentAt time.Time
	// ProducedAt is when the producer made the message, by its clock; zero, or not within 1970 to
	// 9999, if it does not say. A redrive changes SentAt at some brokers, never this.
	ProducedAt time.Time
	// VerifiedBy names what proved who sent the message, such as a signature's key id; empty if nothing did. At most 255 octets.
	VerifiedBy string
	// Handle belongs to the transport: what it needs to acknowledge or release this arrival.
	Handle any
}

// A Receipt is proof that the database already holds the outcome of a delivery. Only Pawl's commit step makes a valid one; the zero
// Receipt is refused by every [Source]. So a message cannot be acknowledged before its transaction has committed.
type Receipt struct {
	handle any
	valid  bool
}

// Valid reports whether the receipt came from a commit. A source refuses one that is not.
func (r Receipt) Valid() bool { return r.valid }

// Handle returns what the source put into [Delivery.Handle].
func (r Receipt) Handle() any { return r.handle }

func init() { receipt.Register(func(handle any) any { return Receipt{handle: handle, valid: true} }) }

// A Source is where deliveries come from: the smallest seam a broker needs.
type Source interface {
	// Receive waits, within the source's own poll time, for at most max deliveries (max ≥ 1) and may return none.
	// From here until Ack or Release the source keeps each delivery invisible to other receivers, as far as the broker can. If a
	// message has an OrderingKey, no later one of that key is received while this one is out or waits for the delay of its Release.
	// Hours may pass between two calls, while the database is away or as many deliveries are stored as may be. After ctx ends Receive returns
	// what it holds or an error, and takes nothing more. A consumer that stops calls it once more with the ended ctx, so that a source with
	// calls of its own under way can end them.
	Receive(ctx context.Context, max int) ([]Delivery, error)
	// Ack removes what the database already answered. A failure is counted and reported, not retried as work:
	// the message returns and is absorbed as a duplicate. Receipts that are not [Receipt.Valid] are refused. The broker may hear of it
	// later: in a log, once all before it is acknowledged too, and at the latest in [Finisher.Finish].
	Ack(ctx context.Context, rs ...Receipt) error
	// Release gives deliveries back without acknowledging them; they return after delay, sooner or later as the
	// transport allows. They may return to this receiver only, as long as it lives.
	Release(ctx context.Context, delay time.Duration, ds ...Delivery) error
	// Info describes the source. The zero SourceInfo claims nothing. A consumer calls it when it is made and then once a minute, so it may
	// ask the broker, for 10 s at most.
	Info() SourceInfo
}

// A Finisher is a [Source] that owns something beyond its deliveries: a membership of a group, a channel, a connection. If it gave that up
// while deliveries are being settled, they would be delivered elsewhere at once.
type Finisher interface {
	Source
	// Finish ends the source. A consumer calls it once, last, also if it could not start, and gives it 10 s. Every receipt has been given to
	// Ack by then, what was not settled was given to Release or is left behind, and no other call runs but Info and StillHeld. Finish tells
	// the broker what is not told yet, gives up what is left behind, and leaves. It returns soon after ctx ends. After it Ack and Release
	// do nothing and return an error, StillHeld returns false, and Info still answers.
	Finish(ctx context.Context) error
}

// A Revocable is a [Source] whose broker may take deliveries away that were received and not begun, such as those of a partition that moves
// to another member of its group.
type Revocable interface {
	Source
	// StillHeld reports whether a delivery is still this receiver's, and notes that work on it begins. A consumer asks once for each
	// arrival of a delivery, right before it opens the transaction, or calls a handler that has none. It asks from several goroutines, and
	// waits for the answer, so StillHeld must not ask the broker.
	//
	// After true the source keeps the delivery until Ack or Release, as far as the broker lets it: a move of the partition waits for it. After
	// false the consumer drops the delivery, and neither acknowledges nor releases it. If deliveries of its OrderingKey stand behind it, the
	// consumer asks for each of them at once. It drops those that are lost too, and gives back those that are held, so that none overtakes it.
	//
	// A delivery that the consumer has not asked about may have been taken away unseen when it is given to Release, which then does nothing.
	StillHeld(d Delivery) bool
}

// An Identifier is a [Source] whose own configuration finds what identifies a message, such as its
// key. When an operator retries a delivery that could not be identified, the consumer asks it
// again, since the configuration may have been corrected meanwhile.
type Identifier interface {
	Source
	// Identify returns a delivery that was received earlier as Receive would make it now. Given is
	// what was stored of it: Payload, Attributes, MessageID, Log, Offset, SentAt, ProducedAt and
	// VerifiedBy, and the Key, SemanticKey, Fingerprint and OrderingKey that were found then. What
	// cannot be found from that is left as it is given. Several goroutines call it at once, so it
	// must not ask the broker.
	Identify(d Delivery) Delivery
}

// Forever is the RedeliveryHorizon of a source that keeps messages for ever.
const Forever time.Duration = math.MaxInt64

// SourceInfo describes a [Source] to its consumer. Of what a consumer has read when it was made, only RedeliveryHorizon may change later.
type SourceInfo struct {
	// RedeliveryHorizon is how long after its first arrival a message may come again, dead letter queues and redrives included. A
	// consumer refuses to forget sooner. 0: not known. A source that keeps messages for ever returns [Forever]; its consumer then needs to
	// remember for ever too.
	RedeliveryHorizon time.Duration
	// Evidence says that deliveries prove who sent them. By default a consumer then keeps all of them as they came.
	Evidence bool
	// EvidenceAttributes names the attributes that are part of the evidence and are kept with it. Empty unless Evidence is set.
	EvidenceAttributes []string
	// AckAtOnce says that a sender waits for each acknowledgement, and may never send again. By
	// default a receipt waits up to 20 ms for others, so that they go in one call, and a consumer
	// bounds what it stores.
	AckAtOnce bool
	// ReceiveBatch is how many deliveries a consumer asks for at once, 1 to 10,000; more if its handler takes larger batches. One batch
	// waits in memory for a free handler. Behind others of their OrderingKey stand 100 at most before it receives again, or two batches.
	// Default 10.
	ReceiveBatch int
	// AckBatch is how many receipts go in one call of Ack, 1 to 10,000. Default 10.
	AckBatch int
	// ReleaseBlocks says that a delivery which was given back holds up others until it comes again
	// and is settled, as where it counts against a prefetch: enough of those that fail, and no
	// other is delivered. So a consumer refuses the mode that retries from the source, and stores
	// at once what it would give back again and again: what finds its Exclusive resource busy, and
	// what a Trigger fails with. It gives back, for 2 s at most, what another transaction has in
	// hand, and whatever it receives while the database is away.
	ReleaseBlocks bool
	// Cumulative says that an acknowledgement covers all before it, as an offset does. A delivery that is given back then holds up the
	// acknowledgement of those behind it, so ReleaseBlocks follows.
	Cumulative bool
}
