package contract

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// A Rollup holds numbers by scope and name, in parallel arrays.
type Rollup struct {
	Scopes, Names []string
	Values        []int64
}

// Add appends a number.
func (r *Rollup) Add(scope, name string, value int64) {
	r.Scopes, r.Names, r.Values = append(r.Scopes, scope), append(r.Names, name), append(r.Values, value)
}

// RollupAdd calls pawl_v1.rollup_add in a transaction of its own that does not wait for the disk.
// If sample is true, the caller must report the levels of this minute.
func RollupAdd(ctx context.Context, db Batcher, source string, r Rollup, levels bool) (sample bool, err error) {
	o := Options{}
	set(o, "levels", levels)
	var batch pgx.Batch
	// local to the batch's transaction
	batch.Queue("select pg_catalog.set_config('synchronous_commit', 'off', true)")
	batch.Queue("select a.sample from pawl_v1.rollup_add($1, $2, $3, $4, $5::pg_catalog.jsonb) as a", source, listed(r.Scopes), listed(r.Names), listed(r.Values), o.text())
	results := db.SendBatch(ctx, &batch)
	_, err = results.Exec()
	if err == nil {
		err = results.QueryRow().Scan(&sample)
	}
	if e := results.Close(); err == nil {
		err = e
	}
	leaveStandby(db, err)
	return sample, pawl.Wrap("rollup.add", err)
}

// listed returns a non-nil copy, because pgx sends a nil slice as null.
func listed[T any](all []T) []T { return append([]T{}, all...) }
