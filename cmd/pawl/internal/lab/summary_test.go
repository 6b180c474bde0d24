package lab

import "testing"

// The summary counts one thing in the singular.
func TestReport_Summary(t *testing.T) {
	t.Parallel()
	r := Report{Sent: 1, Presses: 1, Pawl: tally{Effects: 1}, Beside: []beside{{Title: "By hand", tally: tally{Effects: 2, Doubled: 1}}}}
	if got, want := r.Summary(), "1 order, 1 fault; Pawl: 1 effect, 0 doubled, 0 lost; By hand: 2 effects, 1 doubled, 0 lost"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
