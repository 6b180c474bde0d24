package ops_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/ops"
)

// A forgotten delivery has an audit record and runs as new. A delivery is not forgotten while a job
// owns it, or if the transaction rolls back.
func TestForgetInbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	take := func(key string, store bool) (fresh bool) {
		b.must(pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			claim, err := delivery.Take(t.Context(), tx, pawl.Intent{Scope: "orders", Key: key, Fingerprint: pawl.FingerprintOf()})
			b.must(err)
			if fresh = claim.Fresh; store && fresh {
				_, err = claim.Store(t.Context(), tx, delivery.Storage{Queue: "q", Kind: "k", Dead: true, Failure: errors.New("no")})
			}
			return err
		}))
		return fresh
	}
	take("m", false)
	take("dead", true)
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	if r, err := (ops.DeliveryRef{Consumer: "orders", Key: "m"}).Forget(t.Context(), tx, by); err != nil || r.Outcome != ops.Forgotten {
		t.Errorf("%+v, %v", r, err)
	}
	b.must(tx.Rollback(t.Context()))
	if take("m", false) {
		t.Error("a rolled back verb forgot it")
	}
	if r, err := (ops.DeliveryRef{Consumer: "orders", Key: "m"}).Forget(t.Context(), b.pool, by); err != nil || !r.Changed() {
		t.Errorf("%+v, %v", r, err)
	}
	m := ops.DeliveryRef{Consumer: "orders", Key: "m"}
	if _, err := m.Get(t.Context(), b.pool); !errors.Is(err, pawl.ErrNotFound) {
		t.Errorf("%v", err)
	}
	changes, err := m.Changes(t.Context(), b.pool)
	if err != nil || len(changes) != 1 || changes[0].Verb != "inbox_forget" || changes[0].Actor != by.Actor {
		t.Errorf("%+v, %v", changes, err)
	}
	if !take("m", false) {
		t.Error("it did not run as new")
	}
	if r, err := (ops.DeliveryRef{Consumer: "orders", Key: "dead"}).Forget(t.Context(), b.pool, by); err != nil || r.Outcome != ops.Refused || r.JobID == 0 || r.Was != "dead_letter" || r.Hint == "" {
		t.Errorf("%+v, %v", r, err)
	}
	s, err := ops.DeliveryRef{Consumer: "orders", Key: "dead"}.Get(t.Context(), b.pool)
	if err != nil || s.JobStatus != ops.StatusDeadLetter || !s.ProcessedAt.IsZero() || len(s.Fingerprint) != 64 || s.Kept {
		t.Errorf("%+v, %v", s, err)
	}
	if r, err := (ops.DeliveryRef{Consumer: "orders", Key: "none"}).Forget(t.Context(), b.pool, by); err != nil || r.Outcome != ops.Absent || r.Changed() {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []ops.By{{Actor: "ann"}, {Reason: "r"}} {
		if _, err := (ops.DeliveryRef{Consumer: "orders", Key: "m"}).Forget(t.Context(), b.pool, bad); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
