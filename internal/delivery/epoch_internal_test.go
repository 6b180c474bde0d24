package delivery

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl"
)

// A mark proves a row in its own epoch only, for its own intent, and if the row was received after
// the last one that was purged.
func TestEpoch_Proves(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 12, 0, 0, 123_456_000, time.UTC)
	intent := pawl.Intent{Scope: "orders", Key: "o-1", Fingerprint: pawl.FingerprintOf([]byte("body"))}
	now := Epoch{value: "system 17, run 3"}
	until := func(at time.Time) Epoch {
		e := now
		e.forgottenUntil = micros(at)
		return e
	}
	another := func(change func(*pawl.Intent)) pawl.Intent {
		i := intent
		change(&i)
		return i
	}
	for name, c := range map[string]struct {
		made, asked Epoch
		of          pawl.Intent
		want        bool
	}{
		"the same":                {now, now, intent, true},
		"another epoch":           {Epoch{value: "system 17, run 2"}, now, intent, false},
		"no epoch":                {Epoch{}, Epoch{}, intent, false},
		"another key":             {now, now, another(func(i *pawl.Intent) { i.Key = "o-2" }), false},
		"another consumer":        {now, now, another(func(i *pawl.Intent) { i.Scope = "invoices" }), false},
		"another payload":         {now, now, another(func(i *pawl.Intent) { i.Fingerprint[0]++ }), false},
		"received after a purge":  {until(at.Add(-time.Hour)), until(at.Add(-time.Microsecond)), intent, true},
		"as old as a purged row":  {now, until(at), intent, false},
		"older than a purged row": {now, until(at.Add(time.Hour)), intent, false},
	} {
		if got := c.asked.Proves(c.made.Mark(intent, at), c.of); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
