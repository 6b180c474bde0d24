package pawlkafka

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A place of the cluster: a topic and the number of a partition.
type topicPartition struct {
	topic string
	id    int32
}

func (tp topicPartition) String() string { return tp.topic + "/" + strconv.Itoa(int(tp.id)) }

// A partition is one assignment of a partition to this member: it ends with a revoke, and another assignment is another partition. Handles
// point to it, so a receipt that comes after its end commits nothing. Guarded by Source.mu.
type partition struct {
	topicPartition
	source  *Source
	topicID topicID
	member  string // our id in the group when it was assigned: under another one nothing of it is committed
	window

	leaving bool // a revoke is under way: nothing more begins
	gone    bool // revoked, lost, or the source is finished: no commit names it any more
	paused  bool // its window is full

	// Takeovers are counted in the metadata of the commit, as Kafka counts no deliveries: how often this partition was assigned since the
	// mark moved, without being given up in good order. Nothing is handed out before the count is committed.
	taken    int
	counted  bool  // it is committed
	fetched  bool  // something was fetched since the assignment
	there    int64 // the end of the log then: what is behind it, no earlier owner had
	suspects int   // how many more records an earlier owner may have had

	commit commitment // what the broker has
}

// A commitment is what is committed of a partition.
type commitment struct {
	offset int64 // -1: nothing
	taken  int
}

func newPartition(s *Source, tp topicPartition, id topicID, member string) *partition {
	return &partition{topicPartition: tp, source: s, topicID: id, member: member, window: newWindow(-1, -1), taken: 1, commit: commitment{offset: -1}}
}

// resume says where the commit stands from which the partition goes on.
func (p *partition) resume(offset int64, epoch int32, m metadata) {
	p.window = newWindow(offset, epoch)
	p.taken, p.commit = m.Taken+1, commitment{offset: offset, taken: m.Taken}
}

// receives is how often a record was handed out, as far as is known: once for each takeover by which an earlier owner may have had it, and
// once for each time since.
func (p *partition) receives(at *place) int {
	before := 1
	if at.suspect {
		before = p.taken
	}
	return before + at.handed - 1
}

// due is what should be committed of the partition now. In the end, final, it is given up in good order unless work on it goes on.
func (p *partition) due(final bool) (kgo.EpochOffset, commitment, bool) {
	at, c := kgo.EpochOffset{Epoch: p.markEpoch, Offset: p.mark}, commitment{offset: p.mark}
	switch {
	case p.gone, p.mark < 0, !p.fetched:
		return at, c, false
	case !p.counted:
		c.taken = p.taken
	case p.mark != p.commit.offset: // it moved: the count begins anew
	case final && p.commit.taken > 0 && p.started == 0:
	default:
		return at, c, false
	}
	return at, c, true
}

// full reports whether nothing more should be fetched now, and roomy whether it may be fetched
// again: an empty window always may, as half of a bound of 1 is 0.
func (p *partition) full(c Config) bool {
	return p.unsettled >= c.MaxRecords || p.octets >= c.MaxOctets || p.span() >= spanFactor*c.MaxRecords
}

func (p *partition) roomy(c Config) bool {
	return p.unsettled <= c.MaxRecords/2 && p.octets <= c.MaxOctets/2 && p.span() <= spanFactor*c.MaxRecords/2
}
