package job

import (
	"time"

	"github.com/pawl-go/pawl/internal/contract"
)

// A watermark remembers how far a queue has been claimed, so that a claim need not begin at the oldest entry of the index.
// While some transaction anywhere in the database is old, vacuum cannot remove the entries of finished jobs; a claim
// that walks them all gets slower with every job that was ever done (docs/decisions/0014-watermark.md).
//
// A job can become claimable behind the mark: it was enqueued in a transaction that stayed open, or its row was locked when
// its turn came. So every so often a pass begins further back.
type watermark struct {
	newest contract.Marks // the available_at of the last job claimed
	passes [len(passes)]pass
}

// A pass is a claim that begins at one of the distances.
type pass struct {
	last time.Time
	took time.Duration
}

// passes, from the widest: how far behind the newest job they begin, and the shortest pause between two of them.
var passes = [...]struct{ behind, every time.Duration }{
	{0, 250 * time.Millisecond}, // the beginning
	{time.Second, 50 * time.Millisecond},
	{50 * time.Millisecond, 0}, // at 20,000 jobs a second even this is a walk over 1,000 dead entries
}

const (
	cheapPass  = time.Millisecond // a pass this quick may always be made
	passFactor = 20               // a wide pass takes at most one part in so many of the time
)

// next returns where the next claim begins, and which pass that is.
func (m *watermark) next(now time.Time) (since contract.Marks, which int) {
	for which < len(passes)-1 {
		p := m.passes[which]
		if p.took < cheapPass || now.Sub(p.last) >= max(passes[which].every, passFactor*p.took) {
			break
		}
		which++
	}
	if behind := passes[which].behind; behind > 0 {
		for i, at := range m.newest {
			if !at.IsZero() {
				since[i] = at.Add(-behind)
			}
		}
	}
	return since, which
}

// learn moves the marks to what was claimed.
func (m *watermark) learn(rows []contract.JobClaimRow, asked time.Time, took time.Duration, which int) {
	m.passes[which].took = took
	for i := which; i < len(passes); i++ { // a wide pass is also a near one
		m.passes[i].last = asked
	}
	for _, r := range rows {
		if r.AvailableAt.After(m.newest[r.Priority-1]) {
			m.newest[r.Priority-1] = r.AvailableAt
		}
	}
}
