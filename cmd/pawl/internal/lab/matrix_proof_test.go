//go:build proof

package lab

import "testing"

// moments are the moments at which TestMatrix presses a button. It loses acknowledgements at no
// moment of the worker.
var moments = map[string][]moment{
	"duplicates": {started},
	"kill":       {started, written, committed},
	"freeze":     {started, committed},
	"cut":        {written},
	"restart":    {written, replying},
	"lose-acks":  {""},
}

// Each cell of the matrix is true. A button that breaks a way does so at the moment that the table
// names. At no moment does it do anything else, and the other buttons do nothing at all.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for _, w := range ways {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			s := openStage(t)
			played := map[leak]bool{}
			for _, b := range columns() {
				if len(moments[b.Name]) == 0 {
					t.Errorf("button %s is not played", b.Name)
				}
				for _, at := range moments[b.Name] {
					got, history := s.play(w, b.Name, at)
					want := fine
					for _, l := range w.Leaks {
						if l.Button == b.Name && l.At == at {
							played[l], want = true, l.Outcome
						}
					}
					switch {
					case got == want:
					// The table names another moment at which the same happens.
					case want == fine && w.breaks(b.Name, got):
					default:
						t.Errorf("%s at %q: %v, want %v\n%s", b.Name, at, got, want, history)
					}
				}
			}
			for _, l := range w.Leaks {
				if !played[l] {
					t.Errorf("%s at %q is not played", l.Button, l.At)
				}
			}
			if w.handle == nil {
				s.wantTakeover(withPawl, takeover{First: 1, Fence: 1, Second: 2, Newer: 2, Late: lateRefused})
			}
		})
	}
}

func (w way) breaks(button string, o outcome) bool {
	for _, l := range w.Leaks {
		if l.Button == button && l.Outcome == o {
			return true
		}
	}
	return false
}
