package pawl

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/receipt"
)

// A Delivery is one arrival of a message. The same intent may arrive many times, under many message ids.
type Delivery struct {
	// Key names the intent, chosen by the sender. Empty means the message carries none: it is dead-lettered with
	// its payload, never guessed at, unless the consumer's configuration has another key for it.
	Key string
	// KeyFault says why there is no Key, where the transport knows.
	KeyFault string
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
	// Body is the payload, the exact octets received.
	Body []byte
	// Attributes are the message's own headers.
	Attributes map[string]string
	// Receives counts how often the transport handed this message out, this time included; 0 if it does not say.
	Receives int
	// SentAt is when the transport accepted the message, by its clock; zero if it does not say.
	SentAt time.Time
	// ProducedAt is when the producer made the message, by its clock; zero if it does not say. A redrive changes SentAt at some
	// brokers, never this.
	ProducedAt time.Time
	// VerifiedBy names what proved who sent the message, such as a signature's key id; empty if nothing did. At most 255 octets.
	VerifiedBy string
	// Handle belongs to the transport: what it needs to acknowledge or release this arrival.
	Handle any
}

// A Receipt is proof that the database already holds the outcome of a delivery. Only Pawl's commit step can make
// one; the zero Receipt is refused by every [Source]. That is what makes "ack before commit" a compile error.
type Receipt = receipt.Receipt

// A Source is where deliveries come from: the smallest seam a broker needs.
type Source interface {
	// Receive waits, within the source's own poll time, for at most max deliveries (max ≥ 1) and may return none.
	// From here until Ack or Release the source keeps each delivery invisible to other receivers.
	// After ctx ends it returns what it holds or an error, and takes nothing more. Whoever stops calls it once more with
	// the ended ctx, so that a source with calls of its own under way can end them.
	Receive(ctx context.Context, max int) ([]Delivery, error)
	// Ack removes what the database already answered. A failure is counted and reported, not retried as work:
	// the message returns and is absorbed as a duplicate. Receipts that are not [Receipt.Valid] are refused.
	Ack(ctx context.Context, rs ...Receipt) error
	// Release gives deliveries back without acknowledging them; they return after delay, sooner or later as the
	// transport allows.
	Release(ctx context.Context, delay time.Duration, ds ...Delivery) error
}

// A RedeliveryHorizon is what a [Source] may say of itself: how long after its first arrival a message may come again, dead letter
// queues and redrives included. A consumer refuses to forget sooner.
type RedeliveryHorizon interface {
	RedeliveryHorizon() time.Duration
}

// Evidence is what a [Source] may say of itself: its deliveries prove who sent them, and should be kept as they came, with these of their
// attributes.
type Evidence interface {
	Evidence() (attributes []string)
}

// AckAtOnce is what a [Source] may say of itself: somebody waits for each acknowledgement, so a receipt must not wait for others that
// could go in the same call.
type AckAtOnce interface {
	AckAtOnce()
}

// A Handler applies one delivery. Everything it writes through tx commits together with the record that the
// delivery was seen, or not at all. It must not commit or roll back tx itself, and nothing may leave the process
// while it runs: a call to somebody else's API cannot be rolled back (rule 6 in docs/concepts/flow.md).
//
// An error means "not now": the delivery is stored as a job in the same transaction, acknowledged to its broker and
// retried from the database. Wrap it in [Final] if no retry can help. A panic counts as an error.
type Handler func(ctx context.Context, tx pgx.Tx, d Delivery) error

// A BatchHandler applies many deliveries in one transaction, all of them or none; what holds for a [Handler] holds for it. If it
// fails it is called again with each half of them, down to those that fail by themselves: only they are landed. So it may see a
// delivery several times, never twice in one committed transaction.
type BatchHandler func(ctx context.Context, tx pgx.Tx, ds []Delivery) error
