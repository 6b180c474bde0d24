package counted

import (
	"strings"
	"testing"
	"time"
)

// A Run is one of the counted runs.
type Run struct {
	Name    string
	alone   bool // it kills its broker
	proxied bool // it needs a proxy in front of its broker
	// lacks returns what the transport lacks, or "". If it is nil, every transport fits.
	lacks func(Transport) (lacking string)
	play  func(*stage) error // an error means that the run could not be played
}

// Runs are all counted runs.
var Runs = []Run{Kill, Batch, Order, Loss, Rolling, Rebalance, Crash, Cut, Freeze, Poison, Size, Memory, Sink}

// All plays all runs that fit a transport, each as a parallel subtest, and logs which do not fit
// and why.
func All(t *testing.T, tr Transport) {
	t.Helper()
	for _, r := range Runs {
		if lacking := r.lacking(tr); lacking != "" {
			t.Logf("run %s is not for %s: %s", r.Name, tr.Name, lacking)
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			Play(t, tr, r)
		})
	}
}

func (r Run) lacking(tr Transport) string {
	if r.lacks == nil {
		return ""
	}
	return r.lacks(tr)
}

// Play plays one run. The test fails if a promise did not hold, or if the faults did not happen.
func Play(t *testing.T, tr Transport, r Run) *Verdict {
	t.Helper()
	v := judged(t, tr, r, "")
	if !v.Held() {
		t.Errorf("%s\n%s", v, v.why())
	}
	if len(v.Idle) > 0 {
		t.Errorf("the run proves nothing: %s", strings.Join(v.Idle, ", "))
	}
	t.Logf("counted: %s", v.counts())
	return v
}

// MustFail plays a run with a mutant of this package or of the transport. The test fails if the
// judge finds no violation.
func MustFail(t *testing.T, tr Transport, r Run, mutant string) *Verdict {
	t.Helper()
	v := judged(t, tr, r, mutant)
	if v.Held() {
		t.Errorf("no violation was found although processes %s: %s", mutant, v)
	} else {
		t.Logf("found violations such as:\n%s", head(v.why(), 12))
	}
	return v
}

func judged(t *testing.T, tr Transport, r Run, mutant string) *Verdict {
	t.Helper()
	if lacking := r.lacking(tr); lacking != "" {
		t.Fatalf("run %s is not for %s: %s", r.Name, tr.Name, lacking)
	}
	s := newStage(t, tr, r, mutant)
	err := r.play(s)
	s.judge()
	s.verdict.Seconds = time.Since(s.verdict.Began).Seconds()
	t.Logf("%s", s.verdict)
	if *report != "" {
		if err := s.verdict.append(*report); err != nil {
			t.Error(err)
		}
	}
	if err != nil {
		t.Fatalf("the run could not be played: %v\nlast problems of its processes:\n%s", err, strings.Join(s.witness.lastTroubles(20), "\n"))
	}
	return s.verdict
}

// head returns the first lines of a text.
func head(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[:min(lines, len(all))], "\n")
}
