package counted

import (
	"flag"
	"math/rand/v2"
)

var (
	full   = flag.Bool("counted.full", false, "play the counted runs in full length, which takes hours instead of minutes")
	seed   = flag.Uint64("counted.seed", rand.Uint64(), "seed of the random choices of a counted run: what it sends, kills and loses")
	report = flag.String("counted.report", "", "append a line of JSON for each counted run to this file")
)

// sized returns the count for a run in CI, or for a long run with -counted.full.
func sized(short, long int) int {
	if *full {
		return long
	}
	return short
}
