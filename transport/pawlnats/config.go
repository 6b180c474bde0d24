package pawlnats

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

const (
	defaultWait    = 5 * time.Second
	minWait        = 50 * time.Millisecond
	maxWait        = 30 * time.Second
	responseSlack  = time.Second      // extra time before a pull counts as unanswered
	pongWait       = 5 * time.Second  // timeout of the check that the server is alive
	mostUnanswered = 3                // unanswered pulls in a row before Receive fails
	callTimeout    = 10 * time.Second // timeout of the source's own calls to JetStream
	minAckWait     = time.Second      // a third of it must suffice for one extension
	maxBatch       = 1000             // most deliveries per Receive
	heldBatch      = 256              // extensions per round
	defaultBatch   = 100              // default of Config.Batch
	ackBatch       = 128              // receipts per Ack
	minPullBytes   = 16 << 20         // byte limit of one pull, unless one message needs more
	headerOverhead = 64 << 10         // added to the largest payload: one message always fits
)

// Config configures a [Source]. The zero value is fit for production.
type Config struct {
	// Wait is how long one Receive may wait for the first message. Cancelling its context ends the
	// wait. Too short: more requests. Too long: a hanging server is noticed later, 6 s after Wait.
	// Default 5 s, allowed 50 ms to 30 s; the consumer's MaxRequestExpires lowers it.
	Wait time.Duration

	// Batch is how many deliveries a consumer requests at once; unstarted ones wait in memory. Too
	// small: more requests, and a batch handler waits for them; set it to several times the
	// handler's batch. Too large: one process takes messages that others could start, and a crash
	// hides them for AckWait. Default 100, allowed 1 to 1000; the consumer's MaxRequestBatch and
	// MaxAckPending lower it.
	Batch int

	// Key returns the idempotency key of a message. Default: the header Idempotency-Key, else
	// Nats-Msg-Id, else ce-source and ce-id of CloudEvents; see [DefaultKey]. A message without a
	// key is delivered with an empty [pawl.Delivery.Key]; the source never guesses one.
	Key KeyFrom

	// OrderingKey returns the ordering key for a subject, such as [BySubject] or [BySubjectToken];
	// "" means no order for this message. Open requires a consumer with MaxAckPending 1, because
	// JetStream keeps no order between messages that are out at once. Default nil: no order.
	OrderingKey func(subject string) string

	// StartsLater accepts a consumer that does not start with the stream's first message. If such a
	// consumer is deleted and recreated, it skips messages that were not handled. Default false:
	// Open accepts only DeliverPolicy all.
	StartsLater bool

	// Hooks receive received, empty_receive, acknowledged, released, handle_lost, and error if
	// messages may be lost undelivered or the stream or consumer was recreated. Package consumer
	// reports failed Receives and Acks. The zero value logs to slog.Default, all but handle_lost
	// and error at debug.
	Hooks pawl.Hooks
}

func (c Config) filled() (Config, error) {
	c.Wait, c.Batch = cmp.Or(c.Wait, defaultWait), cmp.Or(c.Batch, defaultBatch)
	if c.Key == nil {
		c.Key = DefaultKey()
	}
	if c.Batch < 1 || c.Batch > maxBatch {
		return c, adapter.BadArgument("nats.open", "Batch is %d, allowed are 1 to %d", c.Batch, maxBatch)
	}
	if c.Wait < minWait || c.Wait > maxWait {
		return c, adapter.BadArgument("nats.open", "Wait is %v, allowed are 50ms to 30s", c.Wait)
	}
	if err := adapter.CheckKey(c.Key); err != nil {
		return c, adapter.BadArgument("nats.open", "Key: %v", err)
	}
	return c, nil
}

// patientConn returns an error if the connection would stop reconnecting.
func patientConn(op string, conn *nats.Conn) error {
	if o := conn.Opts; o.AllowReconnect && o.MaxReconnect < 0 {
		return nil
	}
	return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid,
		Err:  fmt.Errorf("the connection gives up for good after %d failed reconnects", max(conn.Opts.MaxReconnect, 0)),
		Hint: "connect with nats.MaxReconnects(-1)"}
}
