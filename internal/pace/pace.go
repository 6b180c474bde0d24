// Package pace chooses how many rows a purge deletes in one transaction. A batch locks its rows until it commits, so the size follows
// what the last batch took: on a slow or busy server batches shrink, on a fast one they grow.
package pace

import "time"

// Bounds of a batch, and what it should take. Callers of inbox_claim wait 50 ms for a lock at most.
const (
	Least  = 10
	First  = 1000
	Most   = 10_000 // what the purges accept
	target = 20 * time.Millisecond
)

// A Pace is the size of the next batch. The zero value begins with [First].
type Pace struct{ rows int }

// Rows is how many rows the next batch may delete.
func (p *Pace) Rows() int {
	if p.rows == 0 {
		p.rows = First
	}
	return p.rows
}

// Took says how long a whole batch took: one above 20 ms halves the next, or more if it took more than twice that; one below
// 10 ms doubles it.
func (p *Pace) Took(d time.Duration) {
	rows := p.Rows()
	switch {
	case d > 2*target:
		rows = int(int64(rows) * int64(target) / int64(d))
	case d > target:
		rows /= 2
	case d < target/2:
		rows *= 2
	}
	p.rows = min(max(rows, Least), Most)
}
