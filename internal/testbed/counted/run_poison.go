package counted

import (
	"fmt"
	"strings"
)

// poisonPayload is the largest payload in octets that a consumer of this run accepts.
const poisonPayload = 32 << 10

// Poison sends orders that kill their process, are refused, have no key, are too long or cannot be
// decoded. Each becomes a dead letter with its payload. Good orders among them, some of which fail
// at first, all take effect.
var Poison = Run{Name: "poison", play: func(s *stage) error {
	s.crew.Mortal = true // processes kill themselves
	s.assign = func(a *assignment, _ int) {
		a.Failures, a.SoloAfter, a.MaxCrashes, a.MaxPayload = 0.1, 2, 2, poisonPayload
	}
	if err := s.start(consumers); err != nil {
		return err
	}
	var bad []Message
	kinds := map[poison]int{killsProcess: sized(1, 5), refused: sized(3, 20), undecodable: sized(3, 20), keyless: sized(3, 20), oversized: sized(3, 20)}
	letters := 0
	for _, kind := range []poison{killsProcess, refused, undecodable, keyless, oversized} {
		for n := range kinds[kind] {
			o := order{Key: fmt.Sprintf("poison, %s, %d", kind, n), Poison: kind}
			if kind == oversized {
				o.Pad = strings.Repeat("x", poisonPayload)
			}
			bad = append(bad, s.book.message(s.book.add(o)))
			letters++
		}
	}
	good := sized(300, 5000)
	for n, m := range bad {
		if err := s.sendNew(good*(n+1)/len(bad) - good*n/len(bad)); err != nil {
			return err
		}
		if err := s.send(m); err != nil {
			return err
		}
	}
	err := s.settle()
	dead, failed := s.count("select count(*) from pawl_v1.dead_letters")
	if failed == nil && dead != letters {
		s.verdict.breaks("%d dead letters, want %d", dead, letters)
	}
	// The row remembers crashes. A process may die before it reports the suspect that it stored.
	crashed, unread := s.count("select count(*) from pawl_v1.dead_letters where crashes > 0")
	s.verdict.needs(unread == nil && crashed == kinds[killsProcess], "the crashes of the killers were not counted")
	s.verdict.needs(s.witness.count("retryable") > 0, "no handler failed")
	return err
}}
