package catalog

import "context"

// Stale reads stalled work from pawl_v1.stale_classify: at most limit rows of a kind and class,
// oldest first within a kind.
func Stale[T any](ctx context.Context, db DB, limit int) ([]T, error) {
	return lookRows[T](ctx, db, "stale.list", `(
  select s.*
    from pawl_v1.stale_classify(null, jsonb_build_object('limit', $1::int)) as s
  ) as r
 order by r.kind, r.since`, limit)
}

// StaleCounts counts stalled work by class.
func StaleCounts[T any](ctx context.Context, db DB) ([]T, error) {
	return lookRows[T](ctx, db, "stale.count", `(
  select s.class, count(*) as n
    from pawl_v1.stale_classify(null, '{"advice": false}') as s
   group by s.class
  ) as r
 order by r.class`)
}
