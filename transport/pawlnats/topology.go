package pawlnats

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
)

// unfit returns an error if a consumer's setting would lose or block messages, or break a promise
// of this package. The hint says what to change.
func (c Config) unfit(name string, k jetstream.ConsumerConfig) error {
	refuse := func(hint, format string, args ...any) error {
		return &pawl.Error{Op: "nats.open", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("the consumer %s "+format, append([]any{name}, args...)...), Hint: hint}
	}
	switch {
	case k.AckPolicy != jetstream.AckExplicitPolicy:
		return refuse("make it with ack explicit", "has the ack policy %s: it would remove messages that have no outcome yet", k.AckPolicy)
	case k.MaxDeliver > 0:
		return refuse("set max-deliver to -1; package consumer counts attempts and has dead letters",
			"delivers a message at most %d times: after that it stays in the stream and is never delivered again", k.MaxDeliver)
	case len(k.BackOff) > 0:
		return refuse("remove the back-off; package consumer has its own", "has a back-off, which overrides AckWait")
	case k.AckWait < minAckWait:
		return refuse("set it to 30s, or to 1s at least", "has an AckWait of %v, too short to be extended", k.AckWait)
	case k.HeadersOnly:
		return refuse("switch headers-only off", "delivers headers only")
	case k.ReplayPolicy != jetstream.ReplayInstantPolicy:
		return refuse("set the replay policy to instant", "replays at the speed of the producers")
	case k.DeliverPolicy != jetstream.DeliverAllPolicy && !c.StartsLater:
		return refuse("make it with deliver all, or set Config.StartsLater if messages may be skipped",
			"has the deliver policy %s: if it is recreated, it skips messages that were not handled", k.DeliverPolicy)
	case k.Durable == "":
		return refuse("make it durable", "is not durable: it ends with its clients")
	case k.InactiveThreshold > 0:
		return refuse("remove the inactive threshold", "is deleted after %v without a client, and its acknowledgements are lost", k.InactiveThreshold)
	case len(k.PriorityGroups) > 0:
		return refuse("make it without priority groups; for an order, set max-pending to 1", "has priority groups, which this package does not serve")
	case c.OrderingKey != nil && k.MaxAckPending != 1:
		return refuse("set max-pending to 1, and partition the subject for more at once; or leave OrderingKey out",
			"has MaxAckPending %d: JetStream keeps no order between messages that are out at once", k.MaxAckPending)
	}
	return nil
}

func oldServer(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return err == nil && (major < 2 || major == 2 && minor < 10)
}

// warnings describes how a stream may lose undelivered messages, and other settings to change.
func warnings(c jetstream.StreamConfig, version string) (all []string) {
	if oldServer(version) {
		all = append(all, fmt.Sprintf("the server is NATS %s: before 2.10 it redelivers more often than necessary, and leaves some requests unanswered", version))
	}
	if c.Storage == jetstream.MemoryStorage {
		all = append(all, fmt.Sprintf("the stream %s is kept in memory: a restart of its server loses its messages", c.Name))
	}
	limited := c.MaxMsgs > 0 || c.MaxBytes > 0 || c.MaxMsgsPerSubject > 0
	if limited && c.Discard == jetstream.DiscardOld && c.Retention == jetstream.LimitsPolicy {
		all = append(all, fmt.Sprintf("the stream %s drops its oldest messages at its limits, delivered or not: set discard to new, or watch the backlog", c.Name))
	}
	return all
}

func horizon(c jetstream.StreamConfig) time.Duration {
	if c.MaxAge <= 0 {
		return pawl.Forever
	}
	return c.MaxAge
}
