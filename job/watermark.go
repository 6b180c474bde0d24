package job

import (
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
)

// A watermark remembers how far a queue has been claimed, so that a claim need not begin at the oldest entry of the index.
// While some transaction anywhere in the database is old, vacuum cannot remove the entries of finished jobs; a claim
// that walks them all gets slower with every job that was ever done (docs/decisions/0014-watermark.md).
//
// A job can become claimable behind the mark: it was enqueued in a transaction that stayed open, or
// its row was locked when a claim came to it. So every so often a pass begins further back.
type watermark struct {
	mu     sync.Mutex
	newest contract.Marks // the available_at of the last job claimed
	passes [len(distances)]passTimes
}

type passTimes struct {
	began        time.Time // the last one
	took, before time.Duration
	going        bool
}

// distances, from the widest: how far behind the newest job a pass begins, and the shortest pause between two of them.
var distances = [...]struct{ behind, every time.Duration }{
	{0, 250 * time.Millisecond}, // the beginning
	{time.Second, 50 * time.Millisecond},
	{50 * time.Millisecond, 0}, // at 20,000 jobs a second even this is a walk over 1,000 dead entries
}

const (
	cheapPass  = time.Millisecond      // a pass this quick may always be made
	slowPass   = 20 * time.Millisecond // a pass this slow is made beside the producer, which goes on meanwhile
	passFactor = 20                    // a wide pass takes at most one part in so many of the time
)

// A pass is a claim that begins at one of the distances.
type pass struct {
	distance int
	since    contract.Marks
	slow     bool      // when it was last made
	began    time.Time // moved by whoever must wait before it can be made
}

// begin returns the pass that is due. Each is ended by end.
func (m *watermark) begin(now time.Time) pass {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := pass{began: now}
	for p.distance < len(distances)-1 && !m.passes[p.distance].due(now, distances[p.distance].every) {
		p.distance++
	}
	times := &m.passes[p.distance]
	times.going, p.slow = true, times.took >= slowPass
	if behind := distances[p.distance].behind; behind > 0 {
		for i, at := range m.newest {
			if !at.IsZero() {
				p.since[i] = at.Add(-behind)
			}
		}
	}
	return p
}

func (t *passTimes) due(now time.Time, every time.Duration) bool {
	took := min(t.took, t.before) // a machine that was busy once must not hide a straggler for 20 times as long
	return !t.going && (took < cheapPass || now.Sub(t.began) >= max(every, passFactor*took))
}

// end moves the marks to what a pass claimed.
func (m *watermark) end(p pass, rows []contract.JobClaimRow, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	times := &m.passes[p.distance]
	times.took, times.before, times.going = now.Sub(p.began), times.took, false
	for i := p.distance; i < len(m.passes); i++ { // a wide pass is also a near one
		m.passes[i].began = p.began
	}
	for _, r := range rows {
		if r.AvailableAt.After(m.newest[r.Priority-1]) {
			m.newest[r.Priority-1] = r.AvailableAt
		}
	}
}
