package counted

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
)

func newSender(t *testing.T, tr Transport) *stage {
	return &stage{TB: t, transport: tr, book: &book{lanes: 7}, random: rand.New(rand.NewPCG(1, 2)), verdict: &Verdict{Faults: map[string]int{}}}
}

// On an ordered transport, a copy never precedes the first of its lane, and the firsts keep their
// order. Each order is sent three times on average. No call of Send has two of a lane.
func TestSend_KeepsTheOrderOfLanes(t *testing.T) {
	t.Parallel()
	next, sent := map[string]int{}, 0
	s := newSender(t, Transport{Ordered: true, Send: func(_ context.Context, _ Queue, ms []Message) error {
		lanes := map[string]bool{}
		for _, m := range ms {
			o, err := parse(m.Body)
			switch {
			case err != nil:
				t.Error(err)
			case lanes[m.Lane]:
				t.Errorf("a call holds two of %s", m.Lane)
			case o.Number > next[o.Lane]:
				t.Errorf("%s: number %d before number %d", o.Lane, o.Number, next[o.Lane])
			}
			next[o.Lane] = max(next[o.Lane], o.Number+1)
			lanes[m.Lane] = true
			sent++
		}
		return nil
	}})
	if err := s.send(s.copied(100)...); err != nil {
		t.Fatal(err)
	}
	if sent != 300 || len(s.book.all()) != 100 {
		t.Errorf("%d sends of %d orders", sent, len(s.book.all()))
	}
}

// Unconfirmed messages are sent again with the same id.
func TestSend_AgainUntilConfirmed(t *testing.T) {
	t.Parallel()
	var ids []string
	s := newSender(t, Transport{Send: func(_ context.Context, _ Queue, ms []Message) error {
		ids = append(ids, ms[0].ID)
		if len(ids) == 1 {
			return errors.New("no answer")
		}
		return nil
	}})
	if err := s.sendNew(1); err != nil {
		t.Fatal(err)
	}
	if len(ids) != 2 || ids[0] != ids[1] || s.verdict.faults("send without") != 1 {
		t.Errorf("ids %q, faults %v", ids, s.verdict.Faults)
	}
}

// The judge can parse the body of each poison in a dead letter.
func TestOrder_BodiesAreRead(t *testing.T) {
	t.Parallel()
	for _, kind := range []poison{"", killsProcess, refused, undecodable, keyless, oversized} {
		o := order{Key: "k", Lane: "k", Cents: 7, Poison: kind}
		if got, err := parse(o.body()); err != nil || got != o {
			t.Errorf("%q: %+v, %v", kind, got, err)
		}
	}
}
