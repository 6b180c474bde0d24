package pace_test

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
)

// At any cost of a row, after a few batches one takes less than 50 ms. Batches are as large as that
// allows.
func TestPace_FollowsWhatBatchesTake(t *testing.T) {
	t.Parallel()
	for _, perRow := range []time.Duration{time.Microsecond, 10 * time.Microsecond, 300 * time.Microsecond, 2 * time.Millisecond} {
		var p pace.Pace
		for range 12 {
			p.Took(time.Duration(p.Rows()) * perRow)
		}
		for range 6 {
			took := time.Duration(p.Rows()) * perRow
			if took > 40*time.Millisecond || took < 5*time.Millisecond && p.Rows() < pace.Most {
				t.Errorf("at %v a row a batch has %d rows and takes %v", perRow, p.Rows(), took)
			}
			p.Took(took)
		}
	}
	var p pace.Pace
	p.Took(time.Hour)
	if p.Rows() != pace.Least {
		t.Errorf("after an hour a batch has %d rows, want %d", p.Rows(), pace.Least)
	}
}
