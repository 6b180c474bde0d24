package job_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
)

// If Admit panics or exits, the worker claims no job, emits an error and calls it again.
func TestQueue_AdmitPanics(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(){"panics": func() { panic("boom") }, "exits": runtime.Goexit} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			var mended atomic.Bool
			config := c.complete()
			config.Queues[0].Admit = func() int {
				if !mended.Load() {
					end()
				}
				return 10
			}
			w, err := job.NewWorker(c.pool, config)
			c.must(err)
			c.enqueueMany(3, job.Request{})
			c.run(w)
			patience.Until(t, "the worker says so", func() bool { return c.counters.Count(pawl.EventError) > 1 })
			c.wantCount("select count(*) from pawl.job where status = 'pending' and fence = 0", 3)
			mended.Store(true)
			c.untilDone()
			c.wantEffects(3)
		})
	}
}
