package job

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
)

// A round reads page after page, continues from an error, and begins again only when it is due.
func TestRound(t *testing.T) {
	t.Parallel()
	var asked []int64
	fail := false
	page := func(after int64) (contract.LaneSweepRow, error) {
		asked = append(asked, after)
		if fail {
			return contract.LaneSweepRow{}, errors.New("boom")
		}
		next := after + 10
		if next > 20 {
			return contract.LaneSweepRow{Count: 1}, nil
		}
		return contract.LaneSweepRow{Count: 1, Next: &next}, nil
	}
	r := round{every: time.Hour}
	take := func(count int, pages ...int64) {
		t.Helper()
		asked = nil
		if got, _ := r.take(page); got != count || !slices.Equal(asked, pages) {
			t.Errorf("%d from the pages %v, want %d from %v", got, asked, count, pages)
		}
	}
	take(3, 0, 10, 20)
	take(0) // not due for an hour
	r.due, r.after = time.Time{}, 10
	take(2, 10, 20)
	r.due, r.after, fail = time.Time{}, 10, true
	take(0, 10)
	take(0)
	r.due, fail = time.Time{}, false
	take(2, 10, 20)
	if until := time.Until(r.due); until < 59*time.Minute {
		t.Errorf("due in %v, want an hour", until)
	}
}
