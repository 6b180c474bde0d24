package job

import (
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
)

// A watermark stores how far a queue has been claimed, so that a claim need not start at the oldest
// index entry. While any transaction in the database is old, vacuum cannot remove the entries of
// finished jobs. A claim that scans them all gets slower with every finished job
// (docs/decisions/0014-watermark.md).
//
// A job can become claimable behind the mark: its transaction stayed open, or its row was locked
// when a claim reached it. So some passes begin further back.
type watermark struct {
	mu     sync.Mutex
	newest contract.Marks // available_at of the last claimed job, by priority
	passes [len(distances)]passTimes
}

type passTimes struct {
	began        time.Time // of the last pass
	took, before time.Duration
	going        bool
}

// distances are the kinds of passes, widest first: how far behind the newest job a pass begins, and
// the shortest pause between two such passes.
var distances = [...]struct{ behind, every time.Duration }{
	{0, 250 * time.Millisecond}, // from the beginning
	{time.Second, 50 * time.Millisecond},
	{50 * time.Millisecond, 0}, // at 20,000 jobs/s even this scans 1,000 dead entries
}

const (
	cheapPass  = time.Millisecond      // a pass this quick is always due
	slowPass   = 20 * time.Millisecond // a pass this slow runs in the background
	passFactor = 20                    // a wide pass takes at most 1/passFactor of the time
)

// A pass is a claim that begins at one of the distances.
type pass struct {
	distance int
	since    contract.Marks
	slow     bool      // the last pass at this distance was slow
	began    time.Time // reset when the pass gets its connection
}

// begin returns the pass that is due. Call end after each pass.
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
	// One slow pass on a busy machine must not hide a straggler for 20 times as long.
	took := min(t.took, t.before)
	return !t.going && (took < cheapPass || now.Sub(t.began) >= max(every, passFactor*took))
}

// end moves the marks to the claimed jobs.
func (m *watermark) end(p pass, rows []contract.JobClaimRow, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	times := &m.passes[p.distance]
	times.took, times.before, times.going = now.Sub(p.began), times.took, false
	for i := p.distance; i < len(m.passes); i++ { // a wide pass covers the nearer ones
		m.passes[i].began = p.began
	}
	for _, r := range rows {
		if r.AvailableAt.After(m.newest[r.Priority-1]) {
			m.newest[r.Priority-1] = r.AvailableAt
		}
	}
}
