// Package guard does the work of a row once. The row is in a table of yours and has a status.
//
//	pending ──── Once: your work and completed, in one transaction ────▶ completed
//	   │                                                          ▲
//	   └── Claim ──▶ processing ── Commit: your work, one transaction ┘
//	                    │
//	                    └── Fail, or a Sweeper ──▶ error, or pending again
//
// [Rows.Once] is for work of up to 30 s that calls no other system. [Rows.Claim] is for longer work: it commits the claim first. A [Sweeper]
// drives rows again that failed, whose process died, or whose message is gone. See docs/guides/choose.md.
//
// For work that no row stands for, use package lock.
package guard
