package main

import (
	"strings"
	"testing"
	"time"
)

const inVainOnce = `2026/11/27 06:37:20 INFO pawl: handle_lost op=webhook.accept
--- FAIL: TestOuter (0.00s)
    --- FAIL: TestOuter/inner_case (180.45s)
        bed_test.go:12: a log
        bed_test.go:140: TIMING: waited in vain: the job is done
            It took 3m0s; the longest stall was 2m50s.
FAIL
FAIL	github.com/pawl-go/pawl/job	246.699s
ok  	github.com/pawl-go/pawl/lock	2.104s
FAIL
make: *** [Makefile:28: test] Error 1
`

func TestInVain(t *testing.T) {
	all, err := inVain(inVainOnce)
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	if f := all[0]; f.Package != "github.com/pawl-go/pawl/job" || f.Test != "TestOuter/inner_case" || f.Waited != "the job is done" {
		t.Errorf("%+v", f)
	}
	if p := pattern(all[0].Test); p != "^TestOuter$/^inner_case$" {
		t.Errorf("pattern %s", p)
	}
}

func TestInVain_NothingElseIsPlayedAgain(t *testing.T) {
	another := strings.ReplaceAll(inVainOnce, "TestOuter", "TestOther")
	for name, output := range map[string]string{
		"nothing failed":          "ok  	github.com/pawl-go/pawl/lock	2.104s\n",
		"another failure":         inVainOnce + "--- FAIL: TestDoubled (1.0s)\n    a_test.go:1: 2 effects, want 1\nFAIL\nFAIL	github.com/pawl-go/pawl/guard	1.0s\n",
		"another in the package":  strings.Replace(inVainOnce, "FAIL\nFAIL", "--- FAIL: TestDoubled (1.0s)\n    a_test.go:1: 2 effects\nFAIL\nFAIL", 1),
		"a failure of the outer":  strings.Replace(inVainOnce, "    --- FAIL", "    a_test.go:1: 2 effects\n    --- FAIL", 1),
		"a panic":                 "panic: runtime error\n" + inVainOnce,
		"a race":                  "WARNING: DATA RACE\n" + inVainOnce,
		"a hang":                  "panic: test timed out after 40m0s\n" + inVainOnce,
		"no build":                inVainOnce + "FAIL	github.com/pawl-go/pawl/guard [build failed]\n",
		"a package without tests": inVainOnce + "FAIL	github.com/pawl-go/pawl/guard	1.0s\n",
		"three":                   inVainOnce + another + strings.ReplaceAll(inVainOnce, "TestOuter", "TestThird"),
	} {
		if all, err := inVain(output); err == nil {
			t.Errorf("%s: %+v is played again", name, all)
		}
	}
	if all, err := inVain(inVainOnce + another); err != nil || len(all) != 2 {
		t.Errorf("two: %+v, %v", all, err)
	}
}

func TestTimes_ForgetsAfterTwoWeeks(t *testing.T) {
	now := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	w := flake{Package: "p", Test: "T"}
	var known []flake
	for _, days := range []int{1, 13, 15} {
		known = append(known, flake{Package: "p", Test: "T", At: now.AddDate(0, 0, -days)}, flake{Package: "q", Test: "T", At: now})
	}
	if n := times(known, w, now); n != 2 {
		t.Errorf("%d times, want 2", n)
	}
}
