package pawlkafka

import (
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
	spanFactor        = 10                     // a window holds as many times MaxRecords, settled ones behind an unsettled one included
	commitEvery       = 100 * time.Millisecond // between two commits
	callTimeout       = 10 * time.Second       // of calls made on our own account
	revokeSlack       = 5 * time.Second        // of the rebalance timeout is left for the last commit and the rejoin
	pollRecords       = 1000                   // of one poll of the client's buffer
	idlePoll          = 250 * time.Millisecond // between two looks at the client's buffer if no record is announced
	receiveBatch      = 100                    // what a consumer asks for at once
	ackBatch          = 500                    // receipts of one call: Ack sends nothing
	troubleFor        = 10 * time.Second       // errors that pass by themselves are returned if they last so long
	maxErrors         = 16                     // of fetches that wait for a Receive
)

// Config shapes a [Source]. The zero value is fit for production.
type Config struct {
	// Wait is how long one Receive may wait for the first record. A stop does not wait for it. Default 5 s, allowed 50 ms to 30 s.
	Wait time.Duration

	// Key finds the idempotency key of a record. Default: the header Idempotency-Key, else ce_source and ce_id of CloudEvents; see
	// [DefaultKey]. A record without a key is delivered with an empty [pawl.Delivery.Key]; nothing is guessed. The key of the record itself
	// is never an idempotency key: it names an entity, and every change of the entity has it.
	Key KeyFrom

	// MaxRecords and MaxOctets bound what is fetched of one partition and not settled. At either
	// bound the partition is not fetched until half of it is settled; what one fetch of the client
	// returns is taken as a whole. Too small: a partition waits for its slowest record. Too large:
	// more memory, and more comes again after a crash, as duplicates: at most ten times MaxRecords,
	// if one record is unsettled for long. Defaults 1,000 records and 64 MiB; allowed 1 to 100,000
	// and 1 octet to 1 GiB.
	MaxRecords int
	MaxOctets  int

	// MaxTotalOctets bounds the same over all partitions of this member. At the bound nothing is fetched until half of it is settled.
	// Default 256 MiB, allowed from MaxOctets to 64 GiB.
	MaxTotalOctets int

	// ServerSideBalancer joins the group by the protocol of KIP-848, in which the broker assigns the partitions: a rebalance then stops
	// only the members that give up a partition. It needs brokers from 4.3 on; older ones answer commits with STALE_MEMBER_EPOCH in
	// ordinary rebalances. All members of a group should agree. Default false: the classic protocol, cooperative.
	ServerSideBalancer bool

	// Hooks receive received, empty_receive, acknowledged, released, handle_lost, and error where records were lost or a topic was made
	// anew; package consumer reports the failures to receive. The zero value logs them to slog.Default, all but handle_lost and
	// error at debug.
	Hooks pawl.Hooks
}

const (
	defaultMaxTotalOctets = 256 << 20
	maxMaxTotalOctets     = 64 << 30
)

// filled returns the config with defaults in place, or an error that names the field out of bounds.
func (c Config) filled() (Config, error) {
	const op = "kafka.open"
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
	if c.Key == nil {
		c.Key = DefaultKey()
	}
	if c.MaxRecords == 0 {
		c.MaxRecords = defaultMaxRecords
	}
	if c.MaxOctets == 0 {
		c.MaxOctets = defaultMaxOctets
	}
	if c.MaxTotalOctets == 0 {
		c.MaxTotalOctets = max(defaultMaxTotalOctets, c.MaxOctets)
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
