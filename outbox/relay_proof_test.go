//go:build proof

package outbox_test

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
)

// A relay that polls once in an hour hears a kick of its own process at once, also where appends
// notify no relay (trap T27: nothing depends on it). No event tells such a kick from a poll, so the
// time decides.
func TestKick_OfThisProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.pool.Exec(t.Context(), "create or replace function pawl_v1._wake(p_queues text[]) returns void language plpgsql as 'begin end'")
	b.must(err)
	r, _ := b.relay(func(c *outbox.Config) { c.Poll, c.Presence = time.Hour, job.Presence{} })
	<-r.Ready()
	for n := range 2 {
		time.Sleep(5300 * time.Millisecond) // after 10, 20, … 2560 ms it has polled, and does not for another 5 s
		began := time.Now()
		b.append(event("1", "local"))
		r.Kick()
		b.untilAccepted(n + 1)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("it took %v, as long as to the next poll", took)
		}
	}
}
