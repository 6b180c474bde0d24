package pawlsqs

import (
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// The limits of SQS. Sources: ReceiveMessage, ChangeMessageVisibility and SendMessage of the API
// reference, and "Amazon SQS message quotas" of the developer guide.
const (
	maxBatch      = 10                  // deliveries of one Receive, entries of one call
	maxVisibility = 12 * time.Hour      // a message may stay invisible this long after a receive, whatever is asked
	maxWait       = 20 * time.Second    // of one long poll
	maxDelay      = 15 * time.Minute    // of a sent message
	maxRetention  = 14 * 24 * time.Hour // of a queue
	maxAttributes = 10                  // attributes of a message
)

const (
	defaultVisibility = 30 * time.Second
	defaultWait       = maxWait
	pollSlack         = 10 * time.Second // how much longer than its wait a poll may take before it is given up
	callTimeout       = 10 * time.Second // of calls made on our own account, and the bound of Release at a drain
)

// ShortPoll is the [Config.Wait] that asks for an answer at once.
const ShortPoll time.Duration = -1

// MaxSize is how many octets SQS takes of a message, its attributes included.
const MaxSize = 1 << 20

// KeepTimeout is the delay for [Source.Release], and what [Config.ReleaseDelay] may answer, that leaves a message to the
// rest of its visibility timeout: no call is made, and it returns when the timeout ends, at most Config.Visibility from now.
const KeepTimeout time.Duration = -1 << 63

// Config shapes a [Source]. The zero value is fit for production.
type Config struct {
	// Visibility is how long a message stays invisible after the last sign of life of this process. It is sent with
	// each receive, so the queue's own default does not matter, and extended at each third of it until Ack or
	// Release. Too short: a pause of this process (a stop, a network fault) lets others receive what it still
	// handles. Too long: after a crash its messages are missing for that long. Default 30 s, allowed 1 s to 12 h,
	// rounded up to whole seconds.
	Visibility time.Duration

	// Wait is how long one Receive may wait for the first message. Too short: more calls, which are billed, and with
	// [ShortPoll] answers that miss messages. Too long: a drain has to wait for the running poll, because a poll
	// that is cut off may strand messages; 20 s is most of the time ECS and Kubernetes give a process to stop, so
	// lower it, or set StopWait, if your deadline is near 30 s. The HTTP client must allow a response to take longer than
	// Wait.
	//
	// Default 20 s, allowed up to 20 s, rounded up to whole seconds. ShortPoll asks for an answer at once; as the SDK
	// cannot send a zero, the queue's ReceiveMessageWaitTimeSeconds decides then, and that is 0 unless you set
	// it.
	Wait time.Duration

	// StopWait bounds how long a stop waits for the running poll; one that takes longer is cut off, and what SQS hands to
	// it stays hidden for Visibility. Default 0: no bound but the poll's own, which strands nothing. Allowed up to 30 s.
	StopWait time.Duration

	// Unwrap takes a message out of the envelope of the service that sent it, before Key looks at it; see [UnwrapSNS] and
	// [UnwrapEventBridge]. Default none.
	Unwrap Unwrap

	// Key finds the idempotency key of a message. Default KeyAttribute("Idempotency-Key"). A message without a key is
	// delivered with an empty [pawl.Delivery.Key]; nothing is guessed.
	Key KeyFrom

	// ReleaseDelay decides when a delivery that is given back becomes visible again. asked is what the caller of Release
	// wants: package consumer asks for 1 to 2 s where another process is handling the same key or the database failed, and for 0
	// where it stops. Answer asked, another delay, 0 for at once, or [KeepTimeout]. Default: asked.
	ReleaseDelay func(asked time.Duration, d pawl.Delivery) time.Duration

	// Hooks receive received, empty_receive, acknowledged, released and handle_lost; package consumer reports the failures to
	// receive and to acknowledge. The zero value logs them to slog.Default, all but handle_lost at debug.
	Hooks pawl.Hooks
}

// filled returns the config with defaults in place, or an error that names the field out of bounds.
func (c Config) filled() (Config, error) {
	if c.Visibility == 0 {
		c.Visibility = defaultVisibility
	}
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
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

// longestPoll is how long a receive may take in good health.
func (c Config) longestPoll() time.Duration {
	if c.Wait == ShortPoll {
		return maxWait // the queue's own wait, whatever it is
	}
	return time.Duration(wholeSeconds(c.Wait)) * time.Second
}

// wholeSeconds rounds up, as SQS knows no fractions; negative is 0.
func wholeSeconds(d time.Duration) int32 {
	return int32((max(d, 0) + time.Second - 1) / time.Second)
}
