package schematest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
)

// A function that resolves names through its caller's search_path runs objects of others as that
// caller. So each function sets its own path with pg_temp last, or has a body whose names were
// resolved at its creation.
func TestFunctions_SetTheirSearchPath(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	rows, _ := pool.Query(t.Context(), `select p.oid::regprocedure::text
  from pg_proc as p
 where p.pronamespace in ('pawl'::regnamespace, 'pawl_v1'::regnamespace)
   and p.prosqlbody is null
   and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)`)
	loose, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(loose) > 0 {
		t.Errorf("functions that resolve names through the caller's search_path: %v\nadd: set search_path = pg_catalog, pg_temp", loose)
	}
}
