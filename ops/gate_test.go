package ops_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/ops"
)

// A gate is given its beginning, and its gap is given up, each with a record.
func TestGates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r, err := ops.ResetGate(t.Context(), b.pool, "orders", "account 7", 41, by)
	if err != nil || r.Outcome != ops.GateReset || r.Before != nil || r.Last != 41 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = ops.ReleaseGate(t.Context(), b.pool, "orders", "account 7", by); err != nil || r.Outcome != ops.Idle {
		t.Errorf("%+v, %v", r, err)
	}
	b.must(pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		claim, err := inbox.Take(t.Context(), tx, pawl.Intent{Scope: "orders", Key: "m", Fingerprint: pawl.FingerprintOf()})
		b.must(err)
		turn := inbox.Turn{Consumer: "orders", Resource: "account 7", Seq: 44, Mode: inbox.Strict}
		if v, _, err := inbox.Pass(t.Context(), tx, turn); err != nil || v != inbox.Early {
			t.Errorf("%s, %v", v, err)
		}
		id, err := claim.Land(t.Context(), tx, inbox.Landing{Queue: "q", Kind: "k"})
		b.must(err)
		return inbox.Hold(t.Context(), tx, turn, id)
	}))
	gates, err := ops.Gates(t.Context(), b.pool, ops.GateFilter{Held: true})
	if err != nil || len(gates) != 1 || gates[0].Resource != "account 7" || *gates[0].Last != 41 || gates[0].Held != 1 || gates[0].NextHeld != 44 || gates[0].Since.IsZero() {
		t.Errorf("%+v, %v", gates, err)
	}
	r, err = ops.ReleaseGate(t.Context(), b.pool, "orders", "account 7", by)
	if err != nil || r.Outcome != ops.GateReleased || *r.Before != 41 || r.Last != 43 {
		t.Errorf("%+v, %v", r, err)
	}
	if n := one[int](b, "select count(*)::int from pawl.audit as a where a.target = 'gate orders account 7'"); n != 2 {
		t.Errorf("%d records", n)
	}
	if _, err := ops.ResetGate(t.Context(), b.pool, "orders", "account 7", 1, ops.By{Actor: "ann"}); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("without a reason: %v", err)
	}
	for _, bad := range []ops.GateFilter{{Limit: 1001}, {After: "account 7"}} {
		if _, err := ops.Gates(t.Context(), b.pool, bad); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
