package cli

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl/cmd/pawl/internal/demo"
)

// A line of progress never wraps, because a wrapped line could not be erased. At 100 columns the
// counters of a usual run fit.
func TestFit_NeverWraps(t *testing.T) {
	t.Parallel()
	p := demo.Progress{Effects: 5000, Orders: 5000, Deliveries: 16000, Duplicates: 11000, Retried: 100, Kills: 10, KillsWant: 10,
		LastKill: "consumer.handle.before", Elapsed: time.Minute}
	parts := append([]string{bar(p.Effects, p.Orders)}, counters(p)...)
	for width := range 200 {
		if line := fit(parts, width); utf8.RuneCountInString(line) > width {
			t.Errorf("%d columns: %q", width, line)
		}
	}
	if line := fit(parts, 99); !strings.HasSuffix(line, "100 retried") {
		t.Errorf("100 columns: %q", line)
	}
	if line := fit(parts, 150); !strings.HasSuffix(line, "last kill: consumer.handle.before") {
		t.Errorf("150 columns: %q", line)
	}
}

func TestBar(t *testing.T) {
	t.Parallel()
	for done, filled := range map[int]int{0: 0, 50: barWidth / 2, 100: barWidth, 101: barWidth} {
		if got := bar(done, 100); strings.Count(got, "█") != filled || utf8.RuneCountInString(got) != barWidth+2 {
			t.Errorf("%d of 100: %s", done, got)
		}
	}
	if got := bar(0, 0); strings.Count(got, "█") != barWidth {
		t.Errorf("nothing to do: %s", got)
	}
}
