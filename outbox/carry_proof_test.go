//go:build proof

package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
)

// One event on which whole calls fail delays no other aggregate: its neighbours are published again
// once at most. The breaker, whose pause is an hour here, stays closed.
func TestRelay_OneBadEventDelaysNoOther(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(b *bed, ms []pawl.Message) []error{
		"after it has accepted the rest": func(b *bed, ms []pawl.Message) []error {
			errs := make([]error, len(ms))
			for i, m := range ms {
				b.got = append(b.got, m)
				if slices.ContainsFunc(ms, isBad) {
					errs[i] = pawl.SinkDown(errors.New("the checksum of the answer"))
				}
			}
			return errs
		},
		"and accepts none": func(b *bed, ms []pawl.Message) []error {
			errs := make([]error, len(ms))
			for i, m := range ms {
				if slices.ContainsFunc(ms, isBad) {
					errs[i] = pawl.SinkDown(errors.New("the broker hangs up"))
				} else {
					b.got = append(b.got, m)
				}
			}
			return errs
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			calls := 0
			b.relay(func(c *outbox.Config) {
				c.Probe = time.Hour
				c.Backoff = job.Backoff{Base: 50 * time.Millisecond, Max: 200 * time.Millisecond}
				c.Sink = sinkFunc(func(_ context.Context, ms []pawl.Message) []error {
					b.mu.Lock()
					defer b.mu.Unlock()
					if slices.ContainsFunc(ms, isBad) {
						calls++
					}
					return fails(b, ms)
				})
			})
			tried := func() int {
				b.mu.Lock()
				defer b.mu.Unlock()
				return calls
			}
			bad := event("bad", "bad")
			bad.MaxAttempts = 8
			first := []outbox.Event{bad}
			for n := range 20 {
				first = append(first, event(fmt.Sprint("first ", n), fmt.Sprint("first ", n)))
			}
			b.append(first...)
			b.wait("the bad one was tried a few times", func() bool { return tried() >= 4 })
			good := func(n int) string { return fmt.Sprint("good ", n) }
			var worst time.Duration
			slow := 0
			for n := range 100 {
				appended := time.Now()
				b.append(event(good(n), good(n)))
				b.wait(good(n), func() bool { return slices.Contains(b.accepted(), good(n)) })
				took := time.Since(appended)
				if worst = max(worst, took); took > 3*time.Second {
					slow++
				}
			}
			// A machine may stall now and then. With an open breaker it takes minutes.
			if t.Logf("the slowest good event took %v", worst); slow > 10 {
				t.Errorf("%d good events took more than 3 s beside the bad one, the slowest %v", slow, worst)
			}
			b.wait("the bad one is a dead letter", func() bool {
				return b.count("select count(*) from pawl_v1.outbox_pending where status = 'dead_letter'") == 1
			})
			b.untilDone()
			times := map[string]int{}
			for _, p := range b.accepted() {
				times[p]++
			}
			for p, n := range times {
				if most := 2; p != "bad" && n > most || strings.HasPrefix(p, "good") && n > 1 {
					t.Errorf("%s was published %d times", p, n)
				}
			}
			b.wantCount("select count(*) from pawl_v1.outbox_pending where attempt_count <> 8", 0)
		})
	}
}

func isBad(m pawl.Message) bool { return string(m.Payload) == "bad" }
