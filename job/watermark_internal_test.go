package job

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
)

// A claim begins a second behind the last one, by priority; now and then, and whenever it is cheap, at the beginning.
func TestWatermark(t *testing.T) {
	t.Parallel()
	var m watermark
	start, due := time.Now(), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	claimed := func(priority int, at time.Time) []contract.JobClaimRow {
		return []contract.JobClaimRow{{Priority: priority, AvailableAt: at}}
	}
	want := func(after time.Duration, marks contract.Marks, full bool) {
		t.Helper()
		got, gotFull := m.next(start.Add(after))
		if got != marks || gotFull != full {
			t.Errorf("after %v: %v, full %v; want %v, full %v", after, got, gotFull, marks, full)
		}
	}
	none := contract.Marks{}
	want(0, none, true)
	m.learn(claimed(2, due), start, 10*time.Millisecond, true)
	behind := contract.Marks{1: due.Add(-time.Second)}
	want(time.Millisecond, behind, false)
	m.learn(claimed(1, due.Add(time.Minute)), start, time.Millisecond, false)
	m.learn(claimed(2, due.Add(-time.Minute)), start, time.Millisecond, false) // a mark never goes back
	both := contract.Marks{0: due.Add(59 * time.Second), 1: due.Add(-time.Second)}
	want(249*time.Millisecond, both, false)
	want(250*time.Millisecond, none, true)
	m.learn(nil, start, 100*time.Millisecond, true) // an expensive pass is made less often
	want(1999*time.Millisecond, both, false)
	want(2*time.Second, none, true)
	m.learn(nil, start, 900*time.Microsecond, true) // a cheap one always
	want(time.Nanosecond, none, true)
}
