package consumer

import (
	"testing"

	"github.com/pawl-go/pawl"
)

// A handler that fails with a reused key while it is stopped has its delivery released.
func TestUndecided_HandlersReusedKeyGoesBack(t *testing.T) {
	t.Parallel()
	counters := &pawl.Counters{}
	f := &Consumer{cfg: Config{Hooks: counters.Hooks()}} // no pool: storing would panic
	o := f.undecided(t.Context(), pawl.Delivery{Key: "k"}, "consumer.apply", &pawl.Error{Code: pawl.CodeKeyReused})
	if o.decided || o.wait <= 0 || counters.Count(pawl.EventMismatch) != 0 {
		t.Errorf("%+v, %d mismatches", o, counters.Count(pawl.EventMismatch))
	}
}
