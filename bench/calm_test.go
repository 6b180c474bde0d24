package main

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestProcessors_CountWhatIsBusyAndWhatIsStolen(t *testing.T) {
	t.Parallel()
	before, err := parseProcessors("cpu  100 0 50 800 30 0 0 20 7 0\ncpu0 1 1 1 1 1 1 1 1\n")
	if err != nil {
		t.Fatal(err)
	}
	// Of 100 ticks, 70 are idle or iowait and 10 are stolen.
	after, err := parseProcessors("cpu  110 5 55 860 40 0 0 30 9 0\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := after.usedSince(before); math.Abs(got-0.3) > 1e-9 {
		t.Errorf("used %v, want 0.3", got)
	}
	if got := after.stolenSince(before); math.Abs(got-0.1) > 1e-9 {
		t.Errorf("stolen %v, want 0.1", got)
	}
	if got := before.usedSince(before); got != 0 {
		t.Errorf("in no time nothing is used, got %v", got)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8", "cpu a b c d e f g h"} {
		if _, err := parseProcessors(bad); err == nil {
			t.Errorf("%q must be refused", bad)
		}
	}
}

// A busy machine delays a run only for a limited time.
func TestAwaitCalm_GivesUpAfterItsLimit(t *testing.T) {
	t.Parallel()
	if canCalm() != nil { // not Linux: the flag is refused
		if _, err := awaitCalm(t.Context(), 0); err == nil {
			t.Error("calm cannot be known without /proc/stat")
		}
		return
	}
	busy, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for busy.Err() == nil { // keeps at least one processor busy
		}
	}()
	if _, err := awaitCalm(t.Context(), 0); !errors.Is(err, errRestless) {
		t.Errorf("got %v, want errRestless", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := awaitCalm(ended, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is interrupted must not wait, got %v", err)
	}
}

func TestCalmText_SaysHowCalmTheMachineWas(t *testing.T) {
	t.Parallel()
	half, most := 0.001, 0.12
	s := Settings{LoadAverage: "0.1 0.2 0.3", LoadAfter: "2 1 1", StealMedian: &half, StealLargest: &most}
	if got := calmText(s); !strings.Contains(got, "0.1 % of the processors' time in the median and 12 % at most") || !strings.Contains(got, "did not wait") {
		t.Error(got)
	}
	s.Calm = true
	if got := calmText(s); !strings.HasPrefix(got, "Each round began when") {
		t.Error(got)
	}
	if s.Restless = 1; !strings.Contains(calmText(s), "and 1 round began without that") {
		t.Error(calmText(s))
	}
	if got := calmText(Settings{}); got != "" {
		t.Errorf("a run that did not look says nothing, got %q", got)
	}
}
