package ops_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/ops"
)

// A gate's number is set, and its gap is given up, each with an audit record.
func TestGates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r, err := ops.SequenceGateRef{Consumer: "orders", Resource: "account 7"}.Reset(t.Context(), b.pool, 41, by)
	if err != nil || r.Outcome != ops.Reset || r.Was != "" || r.Now != "41" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = (ops.SequenceGateRef{Consumer: "orders", Resource: "account 7"}).Release(t.Context(), b.pool, by); err != nil || r.Outcome != ops.Idle {
		t.Errorf("%+v, %v", r, err)
	}
	b.must(pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		claim, err := delivery.Take(t.Context(), tx, pawl.Intent{Scope: "orders", Key: "m", Fingerprint: pawl.FingerprintOf()})
		b.must(err)
		turn := delivery.Sequence{Consumer: "orders", Resource: "account 7", Seq: 44, Mode: string(consumer.GateStrict)}
		if v, _, err := delivery.Pass(t.Context(), tx, turn); err != nil || v != delivery.Early {
			t.Errorf("%s, %v", v, err)
		}
		id, err := claim.Store(t.Context(), tx, delivery.Storage{Queue: "q", Kind: "k"})
		b.must(err)
		return delivery.Hold(t.Context(), tx, turn, id)
	}))
	page, err := ops.SequenceGates{Held: true}.List(t.Context(), b.pool)
	gates := page.Rows
	if err != nil || len(gates) != 1 || gates[0].Resource != "account 7" || *gates[0].Last != 41 || gates[0].Held != 1 || *gates[0].NextHeld != 44 || gates[0].Since.IsZero() {
		t.Errorf("%+v, %v", gates, err)
	}
	other := gates[0].Ref()
	other.NextHeld = new(int64)
	if r, err = other.Release(t.Context(), b.pool, by); err != nil || r.Outcome != ops.Moved {
		t.Errorf("another number was held: %+v, %v", r, err)
	}
	r, err = gates[0].Ref().Release(t.Context(), b.pool, by)
	if err != nil || r.Outcome != ops.Released || r.Was != "41" || r.Now != "43" {
		t.Errorf("%+v, %v", r, err)
	}
	if n := one[int](b, "select count(*)::int from pawl.audit as a where a.target = 'gate orders account 7'"); n != 2 {
		t.Errorf("%d records", n)
	}
	if _, err := (ops.SequenceGateRef{Consumer: "orders", Resource: "account 7"}).Reset(t.Context(), b.pool, 1, ops.By{Actor: "ann"}); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("without a reason: %v", err)
	}
	for _, bad := range []ops.SequenceGates{{Limit: 1001}, {After: "account 7"}} {
		if _, err := bad.List(t.Context(), b.pool); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
