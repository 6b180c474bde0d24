//go:build proof

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The row that kills workers finds a loop that does jobs twice and a loop that loses them, so it would find a queue that does.
func TestKill_FindsWhatDoublesAndWhatLoses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r, err := run(ctx, []plan{peersKill()}, scales["tiny"], []string{""}, "loop", func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	for who, word := range map[string]string{"loop, lease": "doubled", "loop, delete first": "lost"} {
		l, ok := r.Rows[0].line(who)
		if !ok {
			t.Fatalf("there is no line %q", who)
		}
		var n int
		if n = saidOf(t, l.Rounds[0].Said, word); n == 0 || l.Rounds[0].Failed != "" {
			t.Errorf("%s: %+v, wanted some %s", who, l.Rounds[0], word)
		}
		if float64(n) > l.Rounds[0].Value {
			t.Errorf("%s: the value %v is less than what is said: %s", who, l.Rounds[0].Value, l.Rounds[0].Said)
		}
	}
}

// A queue that holds its promise is found to hold it: Pawl's jobs leave one row each, whatever is killed.
func TestKill_PawlDoublesAndLosesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r, err := run(ctx, []plan{peersKill()}, scales["tiny"], []string{""}, "Pawl", func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"Pawl", "Pawl, batch"} {
		l, _ := r.Rows[0].line(who)
		round := l.Rounds[0]
		if round.Failed != "" || round.Value != 0 || saidOf(t, round.Said, "stuck") != 0 {
			t.Errorf("%s: %+v", who, round)
		}
	}
}

// saidOf reads the number before a word, as in "3 doubled, 0 lost".
func saidOf(t *testing.T, said, word string) (n int) {
	t.Helper()
	for part := range strings.SplitSeq(said, ", ") {
		if before, found := strings.CutSuffix(strings.SplitN(part, " of ", 2)[0], " "+word); found {
			if _, err := fmt.Sscan(before, &n); err != nil {
				t.Fatalf("%q: %v", said, err)
			}
			return n
		}
	}
	t.Fatalf("%q does not say how many are %s", said, word)
	return 0
}
