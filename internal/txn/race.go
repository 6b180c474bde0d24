package txn

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/verdict"
)

// LostRace reports whether a transaction failed with a serialization failure (40001) or a deadlock
// (40P01). It had no effect and may succeed if all of it runs again. The codes stand in the table
// of package verdict. It does not matter whether a handler marked the error as final.
func LostRace(err error) bool {
	return verdict.IsRace(pawl.CodeOf(err))
}

// restarts bounds how often one transaction is run again after losing a race.
const restarts = 8

// Restart runs a whole transaction at most 8 times while it loses races, with a random
// pause in between. PostgreSQL documents that such a transaction must be retried from its start.
func Restart(ctx context.Context, transaction func() error) error {
	for n := 1; ; n++ {
		err := transaction()
		if n == restarts || !LostRace(err) {
			return err
		}
		if !pace.Sleep(ctx, rand.N(time.Duration(n)*20*time.Millisecond)) {
			return err
		}
	}
}
