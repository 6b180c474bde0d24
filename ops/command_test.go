package ops_test

import (
	"errors"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// Commands are listed, looked at and settled, with a record.
func TestCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`select pawl_v1.command_claim('orders', k, sha256(convert_to(k, 'UTF8')), '{"claimed_by": "w1"}') from unnest('{done,failed,lost,silent}'::text[]) as k;
select pawl_v1.command_succeed('orders', 'done', c.fence, '{"result": "{}"}') from pawl.command as c where c.key = 'done';
select pawl_v1.command_fail('orders', 'failed', c.fence, c.hash, '{"code": "stock", "error": "none left"}', '{"final": true}') from pawl.command as c where c.key = 'failed';
select pawl_v1.command_fail('orders', 'lost', c.fence, c.hash, '{}', '{"unknown": true}') from pawl.command as c where c.key = 'lost';
update pawl.command set lease_expires_at = now() - interval '1 minute' where key = 'silent'`)
	keys := func(f ops.CommandFilter) (all string) {
		t.Helper()
		commands, err := ops.Commands(t.Context(), b.pool, f)
		b.must(err)
		for _, c := range commands {
			all += c.Key + " " + string(c.Status) + ", "
		}
		return all
	}
	for want, f := range map[string]ops.CommandFilter{
		"done succeeded, failed failed_final, lost unknown, silent processing, ": {},
		"lost unknown, silent processing, ":                                      {Stale: true},
		"lost unknown, ":                                                         {Scope: "orders", Status: ops.CommandUnknown},
		"silent processing, ":                                                    {After: ops.CommandID{Scope: "orders", Key: "lost"}},
		"done succeeded, failed failed_final, ":                                  {Limit: 2},
		"":                                                                       {Scope: "other"},
	} {
		if got := keys(f); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
	lost := ops.CommandID{Scope: "orders", Key: "lost"}
	by := by
	by.Fence = int64(b.count("select c.fence from pawl.command as c where c.key = 'lost'"))
	older := by // of another attempt
	older.Fence++
	if o, err := ops.SettleCommand(t.Context(), b.pool, lost, ops.CommandVerdict{Landed: true}, older); err != nil || o != ops.Moved {
		t.Errorf("a verdict on another attempt: %s, %v", o, err)
	}
	if o, err := ops.SettleCommand(t.Context(), b.pool, lost, ops.CommandVerdict{Landed: true, Result: `{"id": 7}`, RefType: "order", RefID: "7"}, by); err != nil || o != ops.Settled {
		t.Errorf("%s, %v", o, err)
	}
	c, changes, found, err := ops.ShowCommand(t.Context(), b.pool, lost)
	if err != nil || !found || c.Status != ops.CommandSucceeded || c.ResultOctets != 9 || c.RefID != "7" || c.Stale || len(c.Fingerprint) != 32 ||
		len(changes) != 1 || changes[0].Verb != "command_settle" {
		t.Errorf("%+v, %+v, %v, %v", c, changes, found, err)
	}
	if o, err := ops.SettleCommand(t.Context(), b.pool, lost, ops.CommandVerdict{}, by); err != nil || o != ops.Refused {
		t.Errorf("settled twice: %s, %v", o, err)
	}
	if o, err := ops.SettleCommand(t.Context(), b.pool, ops.CommandID{Scope: "orders", Key: "never"}, ops.CommandVerdict{}, by); err != nil || o != ops.Absent {
		t.Errorf("%s, %v", o, err)
	}
	if _, _, found, err := ops.ShowCommand(t.Context(), b.pool, ops.CommandID{Scope: "orders", Key: "never"}); err != nil || found {
		t.Errorf("%v, %v", found, err)
	}
	_, err = ops.SettleCommand(t.Context(), b.pool, lost, ops.CommandVerdict{}, ops.By{Actor: "ann", Fence: 1})
	_, err2 := ops.Commands(t.Context(), nil, ops.CommandFilter{Status: "dead"})
	_, err3 := ops.SettleCommand(t.Context(), b.pool, lost, ops.CommandVerdict{}, ops.By{Actor: "a", Reason: "r", Fence: 1, From: []ops.Status{ops.StatusPending}})
	_, err4 := ops.SettleCommand(t.Context(), b.pool, lost, ops.CommandVerdict{}, ops.By{Actor: "a", Reason: "r"})
	for _, err := range []error{err, err2, err3, err4} {
		if !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%v", err)
		}
	}
}
