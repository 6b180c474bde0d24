package job

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
)

// A claim begins shortly behind the last one, and at intervals, or if cheap, further back.
func TestWatermark(t *testing.T) {
	t.Parallel()
	const all, second, near = 0, 1, 2
	var m watermark
	start, due := time.Now(), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	learn := func(after, took time.Duration, distance, priority int, at time.Time) {
		for range 2 { // one slow pass may be chance
			began := start.Add(after)
			m.end(pass{distance: distance, began: began}, []contract.JobClaimRow{{Priority: priority, AvailableAt: at}}, began.Add(took))
		}
	}
	want := func(after time.Duration, distance int, marks contract.Marks) {
		t.Helper()
		got := m.begin(start.Add(after))
		m.passes[got.distance].going = false
		if got.since != marks || got.distance != distance {
			t.Errorf("after %v: %v, distance %d; want %v, distance %d", after, got.since, got.distance, marks, distance)
		}
	}
	const ms = time.Millisecond
	none := contract.Marks{}
	want(0, all, none)
	learn(0, 10*ms, all, 2, due)
	want(1*ms, second, contract.Marks{1: due.Add(-time.Second)}) // it is not known to be slow
	learn(1*ms, 2*ms, second, 2, due.Add(time.Minute))
	want(50*ms, near, contract.Marks{1: due.Add(time.Minute - 50*ms)})
	learn(50*ms, ms, near, 1, due)
	learn(50*ms, ms, near, 2, due.Add(-time.Minute)) // a mark never goes back
	want(50*ms, near, contract.Marks{0: due.Add(-50 * ms), 1: due.Add(time.Minute - 50*ms)})
	want(51*ms, second, contract.Marks{0: due.Add(-time.Second), 1: due.Add(time.Minute - time.Second)})
	want(249*ms, second, contract.Marks{0: due.Add(-time.Second), 1: due.Add(time.Minute - time.Second)})
	want(250*ms, all, none)
	learn(250*ms, 100*ms, all, 2, due) // a slow pass is made less often
	learn(350*ms, 30*ms, second, 2, due)
	want(949*ms, near, contract.Marks{0: due.Add(-50 * ms), 1: due.Add(time.Minute - 50*ms)})
	want(950*ms, second, contract.Marks{0: due.Add(-time.Second), 1: due.Add(time.Minute - time.Second)})
	want(2250*ms, all, none)
	learn(2250*ms, 900*time.Microsecond, all, 2, due) // a cheap pass is always due
	want(2251*ms, all, none)
	learn(2251*ms, 30*ms, all, 2, due)
	if got := m.begin(start.Add(3000 * ms)); got.distance != all || !got.slow {
		t.Errorf("%+v, want a slow pass from the beginning", got)
	}
	// Another pass from the beginning is in flight.
	want(9999*ms, second, contract.Marks{0: due.Add(-time.Second), 1: due.Add(time.Minute - time.Second)})
	m.passes[all].going = false
	m.end(pass{distance: all, began: start.Add(10 * time.Second)}, nil, start.Add(11*time.Second))
	want(10*time.Second+600*ms, all, none) // 20 times the shorter of the last two
}
