package pawlsqs

import (
	"cmp"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// The limits of SQS. Sources: ReceiveMessage, ChangeMessageVisibility and SendMessage of the API
// reference, and "Amazon SQS message quotas" of the developer guide.
const (
	maxBatch = 10 // messages in one Receive, entries in one batch call
	// total time a message may stay invisible after a receive, extensions included
	maxVisibility = 12 * time.Hour
	maxWait       = 20 * time.Second    // longest wait of one long poll
	maxDelay      = 15 * time.Minute    // longest delay of a sent message
	maxRetention  = 14 * 24 * time.Hour // longest retention period of a queue
	maxAttributes = 10                  // attributes of one message
)

const (
	defaultVisibility = 30 * time.Second
	defaultWait       = maxWait
	pollSlack         = 10 * time.Second // added to a poll's wait to get its timeout
	callTimeout       = 10 * time.Second // of our own calls, and of Release at a drain
)

// ShortPoll is the [Config.Wait] that asks SQS to answer at once.
const ShortPoll time.Duration = -1

// MaxSize is the largest message SQS takes, in octets, attributes included.
const MaxSize = 1 << 20

// KeepTimeout is a delay for [Source.Release] and a result of [Config.ReleaseDelay]. It leaves the
// message invisible for the rest of its visibility timeout, at most Config.Visibility, and makes no
// call.
const KeepTimeout time.Duration = -1 << 63

// Config configures a [Source]. The zero value is fit for production.
type Config struct {
	// Visibility is how long a message stays invisible after the last extension by this process.
	// Each receive sends it, so the queue's own default does not matter. It is extended every third
	// of this time until Ack or Release. Too short: if this process stalls, another one receives
	// the messages that it still handles. Too long: after a crash its messages stay hidden for that
	// long. Default 30 s, allowed 1 s to 12 h, rounded up to whole seconds.
	Visibility time.Duration

	// Wait is how long one Receive may wait for the first message. Too short: more calls, which AWS
	// bills, and with [ShortPoll] responses that miss messages. Too long: a drain waits for the
	// running poll, because cutting off a poll may strand messages. ECS and Kubernetes give a
	// process about 30 s to stop; if that is your deadline, lower Wait or set StopWait. The HTTP
	// client's timeout must be longer than Wait.
	//
	// Default 20 s, allowed up to 20 s, rounded up to whole seconds. ShortPoll asks for a response
	// at once. The SDK cannot send a zero, so the queue's ReceiveMessageWaitTimeSeconds decides
	// then; its default is 0.
	Wait time.Duration

	// StopWait bounds how long a stop waits for the running poll. A poll that takes longer is cut
	// off, and messages SQS hands to it stay hidden for Visibility. Default 0: the poll's own
	// timeout is the bound, which strands nothing. Allowed up to 30 s.
	StopWait time.Duration

	// Unwrap removes the envelope of the service that sent the message, before Key sees it; see
	// [UnwrapSNS] and [UnwrapEventBridge]. Default none.
	Unwrap Unwrap

	// Key finds the idempotency key of a message. Default KeyAttribute("Idempotency-Key"). A
	// message without a key is delivered with an empty [pawl.Delivery.Key].
	Key KeyFrom

	// ReleaseDelay decides when a released delivery becomes visible again. asked is the delay given
	// to Release. Package consumer asks for 1 to 2 s if another process handles the same key or the
	// database failed, and for 0 when it stops. Return asked, another delay, 0 for at once, or
	// [KeepTimeout]. Default: asked.
	ReleaseDelay func(asked time.Duration, d pawl.Delivery) time.Duration

	// Hooks receive the events received, empty_receive, acknowledged, released and handle_lost.
	// Package consumer reports failures to receive and to acknowledge. The zero value logs them to
	// slog.Default, handle_lost at info and the others at debug.
	Hooks pawl.Hooks
}

func (c Config) filled() (Config, error) {
	c.Visibility, c.Wait = cmp.Or(c.Visibility, defaultVisibility), cmp.Or(c.Wait, defaultWait)
	if c.ReleaseDelay == nil {
		c.ReleaseDelay = func(asked time.Duration, _ pawl.Delivery) time.Duration { return asked }
	}
	if c.Key == nil {
		c.Key = KeyAttribute(DefaultKeyAttribute)
	}
	if c.Visibility < time.Second || c.Visibility > maxVisibility {
		return c, adapter.BadArgument("sqs.open", "Visibility is %v, allowed are 1s to 12h", c.Visibility)
	}
	if c.Wait != ShortPoll && (c.Wait < 0 || c.Wait > maxWait) {
		return c, adapter.BadArgument("sqs.open", "Wait is %v, allowed are up to 20s and ShortPoll", c.Wait)
	}
	if c.StopWait < 0 || c.StopWait > maxWait+pollSlack {
		return c, adapter.BadArgument("sqs.open", "StopWait is %v, allowed are up to 30s", c.StopWait)
	}
	if err := adapter.CheckKey(c.Key); err != nil {
		return c, adapter.BadArgument("sqs.open", "Key: %v", err)
	}
	c.Visibility = time.Duration(wholeSeconds(c.Visibility)) * time.Second
	return c, nil
}

// longestPoll is how long a receive takes at most while SQS responds normally.
func (c Config) longestPoll() time.Duration {
	if c.Wait == ShortPoll {
		return maxWait // the queue's own wait, at most maxWait
	}
	return time.Duration(wholeSeconds(c.Wait)) * time.Second
}

// wholeSeconds rounds up, because SQS takes whole seconds. A negative duration is 0.
func wholeSeconds(d time.Duration) int32 {
	return int32((max(d, 0) + time.Second - 1) / time.Second)
}
