package ops_test

import (
	"errors"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// Commands are listed, read and settled, with an audit record.
func TestCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`select pawl_v1.command_claim('orders', k, sha256(convert_to(k, 'UTF8')), '{"claimed_by": "w1"}') from unnest('{done,failed,lost,silent}'::text[]) as k;
select pawl_v1.command_succeed('orders', 'done', c.fence, '{"result": "{}"}') from pawl.command as c where c.key = 'done';
select pawl_v1.command_fail('orders', 'failed', c.fence, c.hash, '{"code": "stock", "error": "none left"}', '{"final": true}') from pawl.command as c where c.key = 'failed';
select pawl_v1.command_fail('orders', 'lost', c.fence, c.hash, '{}', '{"unknown": true}') from pawl.command as c where c.key = 'lost';
update pawl.command set lease_expires_at = now() - interval '1 minute' where key = 'silent'`)
	keys := func(f ops.Commands) (all string) {
		t.Helper()
		page, err := f.List(t.Context(), b.pool)
		b.must(err)
		for _, c := range page.Rows {
			all += c.Key + " " + string(c.Status) + ", "
		}
		return all
	}
	for want, f := range map[string]ops.Commands{
		"done succeeded, failed failed_final, lost unknown, silent processing, ": {},
		"lost unknown, silent processing, ":                                      {Stale: true},
		"lost unknown, ":                                                         {Scope: "orders", Statuses: []ops.Status{ops.StatusUnknown}},
		"silent processing, ":                                                    {After: "orders/lost"},
		"done succeeded, failed failed_final, ":                                  {Limit: 2},
		"":                                                                       {Scope: "other"},
	} {
		if got := keys(f); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
	lost := ops.CommandRef{Scope: "orders", Key: "lost", Fence: int64(b.count("select c.fence from pawl.command as c where c.key = 'lost'"))}
	older := lost // of another attempt
	older.Fence++
	if r, err := older.Settle(t.Context(), b.pool, ops.CommandVerdict{Executed: true}, by); err != nil || r.Outcome != ops.Moved || r.Fence != lost.Fence || r.Hint == "" {
		t.Errorf("a verdict on another attempt: %+v, %v", r, err)
	}
	verdict := ops.CommandVerdict{Executed: true, Result: `{"id": 7}`, RefType: "order", RefID: "7"}
	if r, err := lost.Settle(t.Context(), b.pool, verdict, ops.DryRun); err != nil || r.Outcome != ops.Settled || !r.DryRun {
		t.Errorf("a dry run: %+v, %v", r, err)
	}
	b.wantCount("select count(*) from pawl.command where status = 'unknown'", 1)
	if r, err := lost.Settle(t.Context(), b.pool, verdict, by); err != nil || r.Outcome != ops.Settled || r.Now != "succeeded" {
		t.Errorf("%+v, %v", r, err)
	}
	c, err := lost.Get(t.Context(), b.pool)
	if err != nil || c.Status != ops.StatusSucceeded || c.ResultOctets != 9 || c.RefID != "7" || c.Stale || len(c.Fingerprint) != 64 ||
		len(c.Changes) != 1 || c.Changes[0].Verb != "command_settle" {
		t.Errorf("%+v, %v", c, err)
	}
	if r, err := lost.Settle(t.Context(), b.pool, ops.CommandVerdict{}, by); err != nil || r.Outcome != ops.Refused || r.Was != "succeeded" {
		t.Errorf("settled twice: %+v, %v", r, err)
	}
	never := ops.CommandRef{Scope: "orders", Key: "never", Fence: 1}
	if r, err := never.Settle(t.Context(), b.pool, ops.CommandVerdict{}, by); err != nil || r.Outcome != ops.Absent {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := never.Get(t.Context(), b.pool); !errors.Is(err, pawl.ErrNotFound) {
		t.Errorf("%v", err)
	}
	_, noReason := lost.Settle(t.Context(), b.pool, ops.CommandVerdict{}, ops.By{Actor: "ann"})
	_, status := ops.Commands{Statuses: []ops.Status{"dead"}}.List(t.Context(), nil)
	_, cursor := ops.Commands{After: "orders"}.List(t.Context(), nil)
	_, noFence := ops.CommandRef{Scope: "orders", Key: "lost"}.Settle(t.Context(), b.pool, ops.CommandVerdict{}, by)
	for _, err := range []error{noReason, status, cursor, noFence} {
		if !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%v", err)
		}
	}
}
