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
// its turn came. So every so often a pass begins at the oldest entry.
type watermark struct {
	marks contract.Marks
	full  time.Time     // when the last full pass was
	took  time.Duration // how long it took
}

const (
	markSlack  = time.Second            // how far behind the last claimed job the mark stays
	cheapPass  = time.Millisecond       // a full pass this quick needs no mark
	fullEvery  = 250 * time.Millisecond // the shortest pause between full passes
	fullFactor = 20                     // full passes take at most one part in so many of the time
)

// next returns where the next claim begins, and whether it is a full pass.
func (m *watermark) next(now time.Time) (since contract.Marks, full bool) {
	if m.took < cheapPass || now.Sub(m.full) >= max(fullEvery, fullFactor*m.took) {
		return contract.Marks{}, true
	}
	return m.marks, false
}

// learn moves the marks to what was claimed.
func (m *watermark) learn(rows []contract.JobClaimRow, asked time.Time, took time.Duration, full bool) {
	if full {
		m.full, m.took = asked, took
	}
	for _, r := range rows {
		if mark := r.AvailableAt.Add(-markSlack); mark.After(m.marks[r.Priority-1]) {
			m.marks[r.Priority-1] = mark
		}
	}
}
