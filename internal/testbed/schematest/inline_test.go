package schematest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
)

// planned are the SQL functions that contain a subquery, which PostgreSQL never inlines. None is on
// a hot path.
var planned = map[string]bool{"_lane_of": true}

// The planner inlines these SQL functions. A function that it does not inline is planned again at
// each call, which costs more than its body. That happens if it is declared more stable than the
// functions that it calls.
func TestExpressions_AreInlined(t *testing.T) {
	t.Parallel()
	conn := connect(t, pawltest.URL(t))
	type expression struct {
		Name     string
		Variadic bool
		Types    []string
	}
	rows, _ := conn.Query(t.Context(), `select p.proname::text, p.provariadic <> 0, array(select format_type(a.type, null) from unnest(p.proargtypes) as a (type))
  from pg_proc as p
 where p.pronamespace = 'pawl_v1'::regnamespace
   and p.prosqlbody is not null`)
	expressions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[expression])
	if err != nil || len(expressions) < 20 {
		t.Fatalf("%d expressions: %v", len(expressions), err)
	}
	for i, e := range expressions {
		var columns, args []string
		for n, typ := range e.Types {
			columns = append(columns, fmt.Sprintf("a%d %s", n, typ))
			args = append(args, fmt.Sprintf("t.a%d", n))
		}
		if e.Variadic {
			args[len(args)-1] = "variadic " + args[len(args)-1]
		}
		table := fmt.Sprintf("given%d", i)
		if _, err := conn.Exec(t.Context(), fmt.Sprintf("create temp table %s (%s)", table, strings.Join(columns, ", "))); err != nil {
			t.Fatal(err)
		}
		rows, _ := conn.Query(t.Context(), fmt.Sprintf("explain (verbose, costs off) select pawl_v1.%s(%s) from %s as t", e.Name, strings.Join(args, ", "), table))
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if called := strings.Contains(strings.Join(plan, "\n"), "pawl_v1."+e.Name+"("); called != planned[e.Name] {
			t.Errorf("%s: called %v, want %v", e.Name, called, planned[e.Name])
		}
	}
}

// Functions that are called only to raise an error have a low cost. For an expensive function, the
// server would choose a custom plan at each call to avoid it.
func TestRefusals_CostLittle(t *testing.T) {
	t.Parallel()
	conn := connect(t, pawltest.URL(t))
	rows, _ := conn.Query(t.Context(), `select p.proname::text
  from pg_proc as p
 where p.pronamespace = 'pawl_v1'::regnamespace
   and p.proname like '\_refuse\_%'
   and p.procost <> 1`)
	dear, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(dear) > 0 {
		t.Errorf("%v %v: add cost 1", dear, err)
	}
}
