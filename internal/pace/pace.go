// Package pace chooses how many rows a purge deletes in one transaction. A batch locks its rows
// until it commits, so its size follows the duration of the last batch: batches shrink on a slow or
// busy server and grow on a fast one.
package pace

import "time"

// Bounds of a batch, and its target duration. Callers of inbox_claim wait at most 50 ms for a lock.
const (
	Least  = 10
	First  = 1000
	Most   = 10_000 // limit of the purge functions
	target = 20 * time.Millisecond
)

// A Pace is the size of the next batch. The zero value begins with [First].
type Pace struct{ rows int }

// Rows returns how many rows the next batch may delete.
func (p *Pace) Rows() int {
	if p.rows == 0 {
		p.rows = First
	}
	return p.rows
}

// Took records the duration of a full batch. Above 20 ms, the next batch is half as large, or
// smaller in proportion above 40 ms. Below 10 ms, it is twice as large.
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
