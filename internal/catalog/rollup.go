package catalog

import (
	"context"
	"time"
)

// A RollupQuery selects rows of pawl.rollup.
type RollupQuery struct {
	Span          string // "minute" or "hour"
	From, Until   time.Time
	Source, Scope string // empty: counts of all, and levels of the whole database
	Names         []string
}

// Rollup reads pawl.rollup. For each time and name it returns the sum of the counts, or the level.
// It reads all rows of the span between the times. Levels "workers" and "queues_left_out" belong to
// the whole database and are read for any scope: "workers" tells when levels were measured. With
// "queues_left_out", a queue without levels was not measured at that time.
func Rollup[T any](ctx context.Context, db DB, r RollupQuery) ([]T, error) {
	return lookRows[T](ctx, db, "rollup.list", `(
  select u.at, u.name, sum(u.value)::bigint as value
    from pawl.rollup as u
   where u.span = $1
     and u.at >= $2
     and u.at < $3
     and u.name = any ($6::text[])
     and case
           when u.kind = 'level' and u.name in ('workers', 'queues_left_out') then u.scope = ''
           when u.kind = 'level' or $5::text <> '' then u.scope = $5 and ($4::text = '' or u.source = $4)
           else true
         end
   group by u.at, u.name
  ) as r
 order by r.at, r.name`, r.Span, r.From, r.Until, r.Source, r.Scope, r.Names)
}
