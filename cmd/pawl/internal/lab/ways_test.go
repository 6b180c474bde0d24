package lab

import "testing"

// Three cells of the matrix, with real processes: a mark before the work loses, a lease without a
// fence doubles, and Pawl's fence refuses the late write. TestMatrix plays all cells.
func TestWays_ThreeCells(t *testing.T) {
	t.Parallel()
	s := openStage(t)
	for _, cell := range []struct {
		way, button string
		want        outcome
	}{{"insert-first", "kill", lost}, {"lease", "freeze", doubled}, {withPawl, "freeze", fine}} {
		w, _ := wayOf(cell.way)
		if got, history := s.play(w, cell.button, started); got != cell.want {
			t.Errorf("%s, %s: %v, want %v\n%s", w.Title, cell.button, got, cell.want, history)
		}
	}
	s.wantTakeover("lease", takeover{First: 1, Second: 2, Late: lateWritten})
	s.wantTakeover(withPawl, takeover{First: 1, Fence: 1, Second: 2, Newer: 2, Late: lateRefused})
}

// wantTakeover requires the latest takeover of a camp, of any order.
func (s *stage) wantTakeover(name string, want takeover) {
	s.Helper()
	all := s.l.campOf(name).takenOver()
	if len(all) == 0 {
		s.Errorf("%s: no takeover", name)
		return
	}
	want.Key = all[0].Key
	if all[0] != want {
		s.Errorf("%s: %+v, want %+v", name, all[0], want)
	}
}
