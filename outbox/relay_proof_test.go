//go:build proof

package outbox_test

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
)

// A relay that polls once an hour reacts at once to a kick from its own process, even if appends
// notify no relay (trap T27). Events cannot distinguish a kick from a poll; the time does.
func TestKick_OfThisProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.pool.Exec(t.Context(), "create or replace function pawl_v1._wake(p_queues text[]) returns void language plpgsql as 'begin end'")
	b.must(err)
	r, _ := b.relay(func(c *outbox.Config) { c.Poll, c.Presence = time.Hour, job.Presence{} })
	<-r.Ready()
	for n := range 2 {
		// The relay has polled after 10, 20, … 2560 ms and does not poll again for 5 s.
		time.Sleep(5300 * time.Millisecond)
		began := time.Now()
		b.append(event("1", "local"))
		r.Kick()
		b.untilAccepted(n + 1)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("it took %v, so the next poll found the event", took)
		}
	}
}
