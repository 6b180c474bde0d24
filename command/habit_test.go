package command_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
)

// If most calls of a scope are answered, an answer needs no transaction. A new key still gets one.
func TestOnce_LooksFirstWhereMostCallsAreAnswered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ask := func(key, payload string) (command.Result[order], error) {
		i := pawl.Intent{Scope: t.Name(), Key: key, Fingerprint: pawl.FingerprintOf([]byte(payload))}
		return command.Once(t.Context(), b.pool, i, command.Options{Wait: -1, Hooks: b.hooks()}, place(key))
	}
	first, err := ask("k", "p")
	b.must(err)
	for range 16 {
		_, err := ask("k", "p")
		b.must(err)
	}
	_, err = ask("new", "p")
	b.must(err)
	held := pawl.Intent{Scope: t.Name(), Key: "held", Fingerprint: pawl.FingerprintOf([]byte("p"))}
	a, _, err := command.Begin[order](t.Context(), b.pool, held, command.LeaseOptions{Lease: time.Hour})
	b.must(err)
	defer a.Close()
	b.exec("alter function pawl_v1.command_open rename to gone")
	again, err := ask("k", "p")
	b.must(err)
	if !again.Replayed || again.Value != first.Value || again.Fence != first.Fence {
		t.Errorf("%+v and then %+v", first, again)
	}
	_, err = ask("k", "q")
	b.wantError(err, pawl.ErrKeyReused)
	_, err = ask("held", "p")
	b.wantError(err, pawl.ErrInProgress)
	_, err = ask("another", "p")
	if pawl.CodeOf(err) != "42883" || errors.Is(err, pawl.ErrInProgress) {
		t.Errorf("a new key without command_open: %v", err)
	}
	b.wantOrders(2)
}
