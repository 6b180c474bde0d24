package pawlkafka

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

type topicPartition struct {
	topic string
	id    int32
}

func (tp topicPartition) String() string { return tp.topic + "/" + strconv.Itoa(int(tp.id)) }

// A partition is one assignment of a partition to this member, until its revoke or loss. Handles
// point to it, so a receipt that arrives after its end commits nothing. Source.mu guards it.
type partition struct {
	topicPartition
	source  *Source
	topicID topicID
	member  string // Our member id at the assignment; nothing of it is committed under another id.
	window

	leaving bool // a revoke is in progress: no new work starts
	gone    bool // revoked, lost or finished: never committed again
	paused  bool // its window is full

	// Takeovers are counted in the commit's metadata, because Kafka does not count deliveries.
	// taken is the number of assignments since the mark last moved, without those ended by a clean
	// revoke. Records are handed out only after this count is committed.
	taken    int
	counted  bool  // taken is committed
	fetched  bool  // records were fetched since the assignment
	there    int64 // end of the log at the first fetch; no earlier owner had later records
	suspects int   // how many more fetched records to mark as suspect

	commit commitment // the last one that the broker accepted
}

type commitment struct {
	offset int64 // -1: none
	taken  int
}

func newPartition(s *Source, tp topicPartition, id topicID, member string) *partition {
	return &partition{topicPartition: tp, source: s, topicID: id, member: member, window: newWindow(-1, -1), taken: 1, commit: commitment{offset: -1}}
}

func (p *partition) resume(offset int64, epoch int32, m metadata) {
	p.window = newWindow(offset, epoch)
	p.taken, p.commit = m.Taken+1, commitment{offset: offset, taken: m.Taken}
}

// receives returns how often a record was handed out, as far as is known. That is once for each
// takeover by which an earlier owner may have had it, and once for each time since.
func (p *partition) receives(at *entry) int {
	before := 1
	if at.suspect {
		before = p.taken
	}
	return before + at.handed - 1
}

// due returns what to commit of the partition now, and whether a commit is due. If final is set and
// no started work is left, it also resets the takeover count, which marks a clean handover.
func (p *partition) due(final bool) (kgo.EpochOffset, commitment, bool) {
	at, c := kgo.EpochOffset{Epoch: p.markEpoch, Offset: p.mark}, commitment{offset: p.mark}
	switch {
	case p.gone, p.mark < 0, !p.fetched:
		return at, c, false
	case !p.counted:
		c.taken = p.taken
	case p.mark != p.commit.offset: // the mark moved, so the count starts again at 0
	case final && p.commit.taken > 0 && p.started == 0:
	default:
		return at, c, false
	}
	return at, c, true
}

// full reports whether fetching must pause. roomy reports whether it may resume: an empty window
// always may, because half of a bound of 1 is 0.
func (p *partition) full(c Config) bool {
	return p.unsettled >= c.MaxRecords || p.octets >= c.MaxOctets || p.span() >= spanFactor*c.MaxRecords
}

func (p *partition) roomy(c Config) bool {
	return p.unsettled <= c.MaxRecords/2 && p.octets <= c.MaxOctets/2 && p.span() <= spanFactor*c.MaxRecords/2
}
