package sqstest

import (
	"hash/fnv"
	"strconv"
	"time"
)

// Rates set how often each fault of [Chaos] occurs, from 0 (never) to 1 (always).
type Rates struct {
	Duplicate      float64       // of receives: a second copy becomes ready
	LoseDelete     float64       // of deletes: OK is returned and the delete is lost
	LoseReceive    float64       // of receives with messages: the response is lost
	Error          float64       // of calls: HTTP 500 before anything changed
	Throttle       float64       // of calls: RequestThrottled before anything changed
	EntryError     float64       // of batch entries: InternalError with SenderFault false
	Empty          float64       // of short polls: no message although some are ready
	Fewer          float64       // of receives: 1 to 9 messages at most
	MaxLatency     time.Duration // each call is delayed by 0 to this long
	Reorder        bool          // messages are handed out in random order
	AbandonedPolls bool          // polls outlive their clients
}

// Chaos makes faults from a seed. Each decision depends only on the seed and its subject (the n-th
// call of an operation on a queue, the k-th receive of its n-th message). Goroutine order does not
// matter, so the same seed gives the same decisions.
//
// Errors hit only the message operations and their batches. Calls that set up queues (CreateQueue,
// GetQueueUrl, SetQueueAttributes) never fail.
func Chaos(seed uint64, r Rates) Faults {
	d := dice(seed)
	return Faults{
		Fail: func(c Call) *Error {
			switch {
			case !messageOps[c.Op]:
				return nil
			case d.hits(r.Error, "error", c.Op, c.Queue, c.N, 0):
				return Internal()
			case d.hits(r.Throttle, "throttle", c.Op, c.Queue, c.N, 0):
				return Throttled()
			}
			return nil
		},
		FailEntry: func(c Call, entry int) *Error {
			if d.hits(r.EntryError, "entry", c.Op, c.Queue, c.N, int64(entry)) {
				return Internal()
			}
			return nil
		},
		Latency: func(c Call) time.Duration {
			return time.Duration(d.roll("latency", c.Op, c.Queue, c.N, 0) * float64(r.MaxLatency))
		},
		LoseReceive: func(c Call, _ int) bool { return d.hits(r.LoseReceive, "lost", c.Op, c.Queue, c.N, 0) },
		Empty:       func(c Call) bool { return d.hits(r.Empty, "empty", c.Op, c.Queue, c.N, 0) },
		Fewer: func(c Call, max int) int {
			if !d.hits(r.Fewer, "fewer", c.Op, c.Queue, c.N, 0) {
				return max
			}
			return 1 + int(d.roll("how many", c.Op, c.Queue, c.N, 0)*(maxBatch-1))
		},
		Reorder: func(queue string, pick int64, n int) int {
			if !r.Reorder {
				return 0
			}
			return int(d.roll("order", "", queue, pick, 0) * float64(n))
		},
		Duplicate: func(a Arrival) bool {
			return d.hits(r.Duplicate, "duplicate", "", a.Queue, a.Number, int64(a.Receives))
		},
		LoseDelete: func(a Arrival) bool {
			return d.hits(r.LoseDelete, "delete", "", a.Queue, a.Number, int64(a.Receives))
		},
		AbandonedPolls: r.AbandonedPolls,
	}
}

var messageOps = map[string]bool{
	"SendMessage": true, "SendMessageBatch": true, "ReceiveMessage": true,
	"DeleteMessage": true, "DeleteMessageBatch": true,
	"ChangeMessageVisibility": true, "ChangeMessageVisibilityBatch": true,
}

// dice is a seed for decisions: the same arguments always give the same result.
type dice uint64

// roll returns a number from 0 up to but not including 1.
func (d dice) roll(kind, op, queue string, n, k int64) float64 {
	h := fnv.New64a()
	for _, part := range []string{kind, op, queue, strconv.FormatInt(n, 10), strconv.FormatInt(k, 10)} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return float64(mix(h.Sum64()^mix(uint64(d)))>>11) / (1 << 53)
}

func (d dice) hits(rate float64, kind, op, queue string, n, k int64) bool {
	return rate > 0 && d.roll(kind, op, queue, n, k) < rate
}

// mix is the finaliser of SplitMix64. FNV alone gives neighbouring counts neighbouring results.
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
