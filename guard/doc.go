// Package guard does the work of a row once. The row is in your table, which has a status column.
//
//	pending ──── Once: your work and completed, in one transaction ────▶ completed
//	   │                                                          ▲
//	   └── Claim ──▶ processing ── Commit: your work, one transaction ┘
//	                    │
//	                    └── Fail, or a Sweeper ──▶ error, or pending again
//
// Use [Rows.Once] for work of up to 30 s that calls no other system. Use [Rows.Claim] for longer
// work: it commits the claim first. A [Sweeper] retries rows that failed, whose process died, or
// whose message was lost. See docs/guides/choose.md.
//
// For work without a row, use package lock.
package guard
