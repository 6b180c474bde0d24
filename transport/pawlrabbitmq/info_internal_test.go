package pawlrabbitmq

import "testing"

// What is given back waits in memory and counts against the prefetch, so enough of it holds up all
// other messages. A consumer must know, whatever the configuration.
func TestInfo_SaysThatAReleaseBlocks(t *testing.T) {
	t.Parallel()
	for _, prefetch := range []int{0, 1, 5, maxPrefetch} {
		config, err := Config{Prefetch: prefetch}.filled()
		if err != nil {
			t.Fatal(err)
		}
		if i := (&Source{config: config}).Info(); !i.ReleaseBlocks || i.AckAtOnce {
			t.Errorf("with a prefetch of %d: %+v", prefetch, i)
		}
	}
}
