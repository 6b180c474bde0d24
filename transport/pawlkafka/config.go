package pawlkafka

import (
	"cmp"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

const (
	defaultWait       = 5 * time.Second
	minWait           = 50 * time.Millisecond
	maxWait           = 30 * time.Second
	defaultMaxRecords = 1000
	maxMaxRecords     = 100_000
	defaultMaxOctets  = 64 << 20
	maxMaxOctets      = 1 << 30
	spanFactor        = 10                     // longest window, as a multiple of MaxRecords
	commitEvery       = 100 * time.Millisecond // interval between commits
	callTimeout       = 10 * time.Second       // timeout of the source's own calls to the broker
	revokeSlack       = 5 * time.Second        // kept of RebalanceTimeout for commit and rejoin
	pollRecords       = 1000                   // records taken from the client's buffer per poll
	idlePoll          = 250 * time.Millisecond // poll interval while no record is announced
	receiveBatch      = 100                    // Receive batch recommended to a consumer
	ackBatch          = 500                    // receipts per Ack, which sends nothing
	troubleFor        = 10 * time.Second       // retriable errors that last longer are returned
	maxErrors         = 16                     // fetch errors kept for Receive
)

// Config configures a [Source]. The zero value is fit for production.
type Config struct {
	// Wait is how long one Receive may wait for the first record. Cancelling its context ends the
	// wait. Default 5 s, allowed 50 ms to 30 s.
	Wait time.Duration

	// Key returns the idempotency key of a record. Default: the header Idempotency-Key, else
	// ce_source and ce_id of CloudEvents; see [DefaultKey]. A record without a key is delivered
	// with an empty [pawl.Delivery.Key]; the source never guesses one. Do not use the record's own
	// key: it names an entity, so all changes of that entity share it.
	Key KeyFrom

	// MaxRecords and MaxOctets bound the unsettled records of one partition. At either bound,
	// fetching pauses until half is settled. One fetch of the client is always taken whole.
	//
	// Too small: a partition waits for its slowest record. Too large: more memory, and more
	// duplicates after a crash, up to ten times MaxRecords if one record stays unsettled for long.
	// Defaults 1,000 records and 64 MiB; allowed 1 to 100,000 records and 1 byte to 1 GiB.
	MaxRecords int
	MaxOctets  int

	// MaxTotalOctets bounds the bytes of unsettled records over all partitions of this member. When
	// it is reached, all fetching pauses until half is settled. Default 256 MiB or MaxOctets if
	// that is larger, allowed from MaxOctets to 64 GiB.
	MaxTotalOctets int

	// ServerSideBalancer joins the group with the KIP-848 protocol, in which the broker assigns the
	// partitions. A rebalance then stops only the members that give up a partition. It requires
	// brokers 4.3 or later: older ones answer commits with STALE_MEMBER_EPOCH in ordinary
	// rebalances. Set it alike in all members. Default false: the classic protocol, cooperative.
	ServerSideBalancer bool

	// Hooks receive received, empty_receive, acknowledged, released, handle_lost, and error for
	// problems with logs, topics, connections, commits and rebalances. Package consumer reports
	// failed Receives. The zero value logs to slog.Default, all but handle_lost and error at debug.
	Hooks pawl.Hooks
}

const (
	defaultMaxTotalOctets = 256 << 20
	maxMaxTotalOctets     = 64 << 30
)

func (c Config) filled() (Config, error) {
	const op = "kafka.open"
	c.Wait, c.MaxRecords, c.MaxOctets = cmp.Or(c.Wait, defaultWait), cmp.Or(c.MaxRecords, defaultMaxRecords), cmp.Or(c.MaxOctets, defaultMaxOctets)
	c.MaxTotalOctets = cmp.Or(c.MaxTotalOctets, max(defaultMaxTotalOctets, c.MaxOctets))
	if c.Key == nil {
		c.Key = DefaultKey()
	}
	switch {
	case c.Wait < minWait || c.Wait > maxWait:
		return c, adapter.BadArgument(op, "Wait is %v, allowed are 50ms to 30s", c.Wait)
	case c.MaxRecords < 1 || c.MaxRecords > maxMaxRecords:
		return c, adapter.BadArgument(op, "MaxRecords is %d, allowed are 1 to %d", c.MaxRecords, maxMaxRecords)
	case c.MaxOctets < 1 || c.MaxOctets > maxMaxOctets:
		return c, adapter.BadArgument(op, "MaxOctets is %d, allowed are 1 to %d", c.MaxOctets, maxMaxOctets)
	case c.MaxTotalOctets < c.MaxOctets || c.MaxTotalOctets > maxMaxTotalOctets:
		return c, adapter.BadArgument(op, "MaxTotalOctets is %d, allowed are %d (MaxOctets) to %d", c.MaxTotalOctets, c.MaxOctets, maxMaxTotalOctets)
	}
	if err := adapter.CheckKey(c.Key); err != nil {
		return c, adapter.BadArgument(op, "Key: %v", err)
	}
	return c, nil
}
