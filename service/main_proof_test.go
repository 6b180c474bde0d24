//go:build proof

package service_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/job"
)

// On SIGTERM a process ends within its ShutdownTimeout. Handlers that can finish do. The others are
// rolled back, and their jobs released without a charge, for other processes to claim at once. A
// handler that ignores its context is abandoned: the next sweep counts a crash of its job.
func TestMain_EndsWithinTheDeadline(t *testing.T) {
	t.Parallel()
	const deadline = 20 * time.Second
	for name, kinds := range map[string][]string{"well": {"slow", "quick"}, "left behind": {"slow", "quick", "deaf"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "create table effect (v text)")
			p := b.start("PAWL_SHUTDOWN_TIMEOUT=" + deadline.String())
			b.until("the program works", func() bool { return b.count("select count(*) from pawl.worker") == 2 })
			for _, kind := range kinds {
				_, err := job.Enqueue(t.Context(), b.eyes, job.Request{Queue: "q", Kind: kind, Payload: []byte("1")})
				b.must(err)
			}
			b.until("the work is in hand", func() bool {
				return b.count("select count(*) from pawl.job where status = 'pending'") == 0
			})
			b.must(p.cmd.Process.Signal(syscall.SIGTERM))
			began := time.Now()
			err := b.awaitEnd(p)
			took := time.Since(began)
			if err != nil {
				t.Errorf("%v\n%s", err, p.said)
			}
			if took > deadline+5*time.Second { // the machine may be slow
				t.Errorf("the end took %v", took)
			}
			if n := b.count("select count(*) from effect where v = 'quick'"); n != 1 {
				t.Errorf("what could end took effect %d times", n)
			}
			if n := b.count("select count(*) from effect where v = 'slow'"); n != 0 {
				t.Errorf("what could not end took effect %d times", n)
			}
			if n := b.count("select count(*) from pawl.job where kind = 'slow' and status = 'pending' and attempts = 0 and crashes = 0"); n != 1 {
				t.Errorf("%d jobs were handed back uncharged\n%s", n, p.said)
			}
			if _, err := b.eyes.Exec(t.Context(), "select pawl_v1.job_sweep('{slow,quick,deaf}')"); err != nil {
				t.Error(err)
			}
			if n := b.count("select count(*) from pawl.job where kind = 'deaf' and status = 'pending' and attempts = 0 and crashes = 1"); n != len(kinds)-2 {
				t.Errorf("%d abandoned jobs count a crash\n%s", n, p.said)
			}
			if n := b.count("select count(*) from pawl.worker"); n != 0 {
				t.Errorf("%d workers did not leave", n)
			}
			if n := b.count("select count(*) from pawl.job where status = 'processing'"); n != 0 {
				t.Errorf("%d jobs are still held", n)
			}
		})
	}
}
