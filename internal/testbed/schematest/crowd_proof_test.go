//go:build proof

package schematest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
)

// With concurrent claimers, a claimed job is held and finished by its claimer at once, in every
// batch. A claimer with an old snapshot may briefly lock rows that another has claimed since. A
// hold or finish waits for that lock.
func TestHoldMany_ConcurrentClaimersDoNotConflict(t *testing.T) {
	t.Parallel()
	const jobs, claimers = 20_000, 4
	pool := pawltest.DB(t, "select pawl_v1.worker_register('w', '12 hours'); select pawl_v1.job_enqueue('q', 'k', convert_to(g::text, 'UTF8')) from generate_series(1, 20000) as g")
	var mu sync.Mutex
	outcomes := map[string]int{}
	round := func(ctx context.Context) (n int, err error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return 0, err
		}
		defer conn.Release()
		var ids, fences []int64
		err = conn.QueryRow(ctx, "select coalesce(array_agg(c.id), '{}'), coalesce(array_agg(c.fence), '{}') from pawl_v1.job_claim('q', 1, 100) as c").Scan(&ids, &fences)
		if err != nil || len(ids) == 0 {
			return 0, err
		}
		count := func(query string) error {
			rows, err := conn.Query(ctx, query, ids, fences)
			if err != nil {
				return err
			}
			all, err := pgx.CollectRows(rows, pgx.RowTo[string])
			mu.Lock()
			defer mu.Unlock()
			for _, outcome := range all {
				outcomes[outcome]++
			}
			return err
		}
		if err := count("select h.outcome from pawl_v1.job_hold_many($1, $2) as h"); err != nil {
			return 0, err
		}
		return len(ids), count("select f.outcome from pawl_v1.job_finish_many($1, $2) as f")
	}
	var all sync.WaitGroup
	for range claimers {
		all.Go(func() {
			for empty := 0; empty < 3; {
				n, err := round(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if n == 0 {
					empty++
				}
			}
		})
	}
	all.Wait()
	if outcomes["held"] != jobs || outcomes["finished"] != jobs || len(outcomes) != 2 {
		t.Errorf("%v, want %d held and finished, and nothing else", outcomes, jobs)
	}
}
