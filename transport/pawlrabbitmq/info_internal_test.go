package pawlrabbitmq

import "testing"

// Released deliveries count against the prefetch, so enough of them hold up all other messages. The
// consumer must know this in every configuration.
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
