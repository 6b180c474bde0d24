package ops_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pawl-go/pawl/ops"
)

// Two commands are unknown, and the orders table shows that one of them was executed. Stales
// changes nothing.
func TestStales_Probed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`create table made (key text primary key);
insert into made values ('a');
select pawl_v1.command_claim('orders', k, sha256(''), '{"lease_ms": 1000}') from unnest('{a,b}'::text[]) as k;
select pawl_v1.command_claim('others', 'a', sha256(''), '{"lease_ms": 1000}');
update pawl.command set lease_expires_at = now() - interval '1 minute'`)
	probe := func(ctx context.Context, s ops.Stale) (made bool, err error) {
		err = b.pool.QueryRow(ctx, "select exists (select from made where key = $1)", s.Key).Scan(&made)
		return made, err
	}
	for range 2 {
		stale, err := ops.Stales(t.Context(), b.pool, "", map[string]func(context.Context, ops.Stale) (bool, error){"orders": probe})
		b.must(err)
		got := map[string]string{}
		for _, s := range stale {
			got[s.Scope+" "+s.Key] = s.Class
		}
		if len(got) != 3 || got["orders a"] != ops.AlreadySucceeded || got["orders b"] != "abandoned" || got["others a"] != "abandoned" {
			t.Errorf("%v", got)
		}
	}
	away := errors.New("the orders are not to be read")
	_, err := ops.Stales(t.Context(), b.pool, "command", map[string]func(context.Context, ops.Stale) (bool, error){"orders": func(context.Context, ops.Stale) (bool, error) { return false, away }})
	if !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
}
