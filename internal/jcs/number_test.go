package jcs_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/pawl-go/pawl/internal/jcs"
)

// Two numbers with the same canonical form are equal, so no number is rounded silently. Exact
// arithmetic is the oracle.
func TestNumbers_TheSameFormIsTheSameNumber(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	kept := map[string]string{}
	check := func(text string) {
		form, err := jcs.Canonical([]byte(text))
		if err != nil {
			return
		}
		exact, ok1 := new(big.Rat).SetString(text)
		canonical, ok2 := new(big.Rat).SetString(string(form))
		if !ok1 || !ok2 || exact.Cmp(canonical) != 0 {
			t.Errorf("%s became %s", text, form)
		}
		kept[string(form)] = text
	}
	for _, text := range []string{"12345678901234567.89", "12345678901234567.12", "9007199254740993.0", "9007199254740992.0", "9007199254740993e0",
		"123456789012345.671", "123456789012345.672", "0.1", "1e2", "100", "1.50", "-0", "-0.0", "0e5", "1e-400", "5e-324", "4.9e-324", "1e23", "0.30000000000000004", "0.3000000000000000444"} {
		check(text)
	}
	for range 20000 {
		check(fmt.Sprintf("%d.%0*d", r.Int64N(1<<r.IntN(62)), 1+r.IntN(6), r.Int64N(100)))
		check(fmt.Sprintf("%d.%de%d", r.IntN(10), r.Int64N(1<<r.IntN(62)), r.IntN(40)-20))
	}
	if len(kept) < 1000 {
		t.Errorf("only %d were kept", len(kept))
	}
}

// Different spellings of a number have one canonical form, and ordinary amounts are accepted.
func TestNumbers_SpellingDoesNotCount(t *testing.T) {
	t.Parallel()
	for form, texts := range map[string][]string{"100": {"100", "1e2", "100.00", "1E+2", "0.1e3"}, "0.1": {"0.1", "0.10", "1e-1"}, "0": {"0", "-0", "0.000", "0e99999999999999999999"},
		"12345678901234.56": {"12345678901234.56", "1234567890123456e-2"}} {
		for _, text := range texts {
			if got, err := jcs.Canonical([]byte(text)); err != nil || string(got) != form {
				t.Errorf("%s became %s, %v", text, got, err)
			}
		}
	}
	for _, text := range []string{"12345678901234567.89", "1e-400", "1e400", "1e-99999999999999999999", "9007199254740993", "123456789012345.671"} {
		if got, err := jcs.Canonical([]byte(text)); err == nil {
			t.Errorf("%s became %s", text, got)
		}
	}
}
