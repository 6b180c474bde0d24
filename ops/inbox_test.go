package ops_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/ops"
)

// A delivery is forgotten with a record and runs as new; not while a job owns it, and not in a transaction that rolls back.
func TestForgetInbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	take := func(key string, land bool) (fresh bool) {
		b.must(pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			claim, err := inbox.Take(t.Context(), tx, pawl.Intent{Scope: "orders", Key: key, Fingerprint: pawl.FingerprintOf()})
			b.must(err)
			if fresh = claim.Fresh; land && fresh {
				_, err = claim.Land(t.Context(), tx, inbox.Landing{Queue: "q", Kind: "k", Dead: true, Failure: errors.New("no")})
			}
			return err
		}))
		return fresh
	}
	take("m", false)
	take("dead", true)
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	if r, err := ops.ForgetInbox(t.Context(), tx, "orders", "m", by); err != nil || r.Outcome != ops.Forgotten {
		t.Errorf("%+v, %v", r, err)
	}
	b.must(tx.Rollback(t.Context()))
	if take("m", false) {
		t.Error("a rolled back verb forgot it")
	}
	if r, err := ops.ForgetInbox(t.Context(), b.pool, "orders", "m", by); err != nil || !r.Changed() {
		t.Errorf("%+v, %v", r, err)
	}
	s, found, err := ops.ShowInbox(t.Context(), b.pool, "orders", "m")
	if err != nil || found || len(s.Changes) != 1 || s.Changes[0].Verb != "inbox_forget" || s.Changes[0].Actor != by.Actor {
		t.Errorf("%+v, %v, %v", s, found, err)
	}
	if !take("m", false) {
		t.Error("it did not run as new")
	}
	if r, err := ops.ForgetInbox(t.Context(), b.pool, "orders", "dead", by); err != nil || r.Outcome != ops.Refused || r.Job == 0 || r.Was != ops.StatusDeadLetter || r.Hint == "" {
		t.Errorf("%+v, %v", r, err)
	}
	s, found, err = ops.ShowInbox(t.Context(), b.pool, "orders", "dead")
	if err != nil || !found || s.JobStatus != ops.StatusDeadLetter || !s.ProcessedAt.IsZero() || len(s.Fingerprint) != 32 || s.Kept {
		t.Errorf("%+v, %v, %v", s, found, err)
	}
	if r, err := ops.ForgetInbox(t.Context(), b.pool, "orders", "none", by); err != nil || r.Outcome != ops.Absent || r.Changed() {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []ops.By{{Actor: "ann"}, {Actor: "ann", Reason: "r", From: []ops.Status{ops.StatusDeadLetter}}} {
		if _, err := ops.ForgetInbox(t.Context(), b.pool, "orders", "m", bad); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
