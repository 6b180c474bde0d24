package catalog

import (
	"context"
	"slices"
	"time"
)

// StepQuery selects rows of pawl_v1.steps. A zero field matches all.
type StepQuery struct {
	Scope, Key string
	Providers  []string
	Statuses   []string
	Page
}

// A StepRow holds the columns that a reconciler needs.
type StepRow struct {
	Scope        string     `json:"scope"`
	Key          string     `json:"key"`
	Step         string     `json:"step"`
	Fence        int64      `json:"fence"`
	Provider     *string    `json:"provider"`
	ProviderKey  string     `json:"provider_key"`
	JobID        *int64     `json:"job_id"`
	Calls        int        `json:"calls"`
	LastNotAfter *time.Time `json:"last_not_after"`
	ReadAt       time.Time  `json:"read_at"` // the database's clock
}

// Steps reads pawl_v1.steps, ordered by scope, key and step.
func Steps[T any](ctx context.Context, db DB, a StepQuery) ([]T, error) {
	q := &query{from: "pawl_v1.steps as r"}
	q.equal("r.scope", a.Scope)
	q.equal("r.key", a.Key)
	q.among("r.provider", a.Providers)
	switch {
	case slices.Equal(a.Statuses, []string{"unknown"}):
		q.also("r.status = 'unknown'") // a literal, to match the partial index step_unknown
	case len(a.Statuses) > 0:
		q.only("r.status = any (%s)", a.Statuses)
	}
	return readPage[T](ctx, db, "step.list", q, a.Page, key{"scope", "text"}, key{"key", "text"}, key{"step", "text"})
}

// Step reads one step. It returns no row if the step does not exist.
func Step[T any](ctx context.Context, db DB, scope, key, step string) ([]T, error) {
	return lookWhole[T](ctx, db, "step.get", "pawl_v1.steps as r where r.scope = $1 and r.key = $2 and r.step = $3", scope, key, step)
}

// StepsOfJob reads at most limit steps of a job that has not finished, ordered by name.
func StepsOfJob[T any](ctx context.Context, db DB, id int64, limit int) ([]T, error) {
	return lookRows[T](ctx, db, "step.list", `pawl.job as j
 cross join lateral pawl_v1._steps_of_job(j) as s
  join pawl_v1.steps as r on r.scope = s.scope and r.key = s.key and r.step = s.step
 where j.id = $1
 order by r.step
 limit $2`, id, limit)
}

// StepCalls reads the newest calls of a step, at most limit, oldest first.
func StepCalls[T any](ctx context.Context, db DB, scope, key, step string, limit int) ([]T, error) {
	return lookRows[T](ctx, db, "step.calls", `(
  select c.fence, c.probe, c.started_at, c.not_after, c.ended_at, c.outcome, c.reference, c.detail
    from pawl.step_call as c
   where c.scope = $1
     and c.key = $2
     and c.step = $3
   order by c.fence desc
   limit $4
  ) as r
 order by r.fence`, scope, key, step, limit)
}
