package pawlnats

import (
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
	answerSlack    = time.Second      // how much longer than its wait a pull may take before it counts as unanswered
	pongWait       = 5 * time.Second  // how long the server may take to show that it is there
	mostUnanswered = 3                // pulls in a row, before that is an error
	callTimeout    = 10 * time.Second // of calls made on our own account
	minAckWait     = time.Second      // a third of it must be enough for one extension
	maxBatch       = 1000             // deliveries of one Receive
	heldBatch      = 256              // extensions of one turn of the heart
	defaultBatch   = 100              // what a consumer asks for at once
	ackBatch       = 128              // receipts of one call
	minPullBytes   = 16 << 20         // of one pull: what is received waits in memory
	headerOverhead = 64 << 10         // beside the largest payload, so that one message always fits a pull
)

// Config shapes a [Source]. The zero value is fit for production.
type Config struct {
	// Wait is how long one Receive may wait for the first message. Too short: more requests. Too long: a server that hangs is noticed later,
	// 6 s after Wait. A stop does not wait for it. Default 5 s, allowed 50 ms to 30 s; the consumer's own MaxRequestExpires lowers it.
	Wait time.Duration

	// Batch is how many deliveries a consumer asks for at once; what of them is not begun waits in memory. Too small: more requests, and a
	// handler of batches that waits for them; give it several times its own batch. Too large: one process takes what others could have begun,
	// and a crash hides it for AckWait. Default 100, allowed 1 to 1000; the consumer's own MaxRequestBatch and MaxAckPending lower it.
	Batch int

	// Key finds the idempotency key of a message. Default: the header Idempotency-Key, else Nats-Msg-Id, else ce-source and ce-id of
	// CloudEvents; see [DefaultKey]. A message without a key is delivered with an empty [pawl.Delivery.Key]; nothing is guessed.
	Key KeyFrom

	// OrderingKey makes an ordering key of a message's subject, such as [BySubject] or [BySubjectToken]; "" means no order for this message.
	// It needs a consumer with MaxAckPending 1, or Open refuses: JetStream keeps no order between messages that are out at once. Default nil:
	// no order is claimed.
	OrderingKey func(subject string) string

	// StartsLater accepts a consumer that does not begin with the first message of the stream. Such a consumer, made anew after it was
	// deleted, skips what was not handled yet. Default false: Open accepts only DeliverPolicy all.
	StartsLater bool

	// Hooks receive received, empty_receive, acknowledged, released, handle_lost, and error where the stream may lose messages unread or
	// was made anew; package consumer reports the failures to receive and to acknowledge. The zero value logs them to slog.Default, all but
	// handle_lost and error at debug.
	Hooks pawl.Hooks
}

// filled returns the config with defaults in place, or an error that names the field out of bounds.
func (c Config) filled() (Config, error) {
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
	if c.Batch == 0 {
		c.Batch = defaultBatch
	}
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

// patientConn refuses a connection that would give up for good.
func patientConn(op string, conn *nats.Conn) error {
	if o := conn.Opts; o.AllowReconnect && o.MaxReconnect < 0 {
		return nil
	}
	return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid,
		Err:  fmt.Errorf("the connection gives up for good after %d failed reconnects", max(conn.Opts.MaxReconnect, 0)),
		Hint: "connect with nats.MaxReconnects(-1)"}
}
