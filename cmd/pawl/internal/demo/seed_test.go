package demo

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pawl-go/pawl"
)

func gameOf(seed uint64) *game {
	return newGame(Options{Broker: "sqs", Messages: 300, Duplicates: 3, Kills: 20, Poison: 5, Seed: seed}, nil, nil, nil, nil)
}

// A seed decides the orders, their messages and their sequence, the kills and the failing attempts.
// Only timing varies.
func TestSeed_DecidesEverything(t *testing.T) {
	t.Parallel()
	a, b, other := gameOf(7), gameOf(7), gameOf(8)
	if !slices.Equal(a.sent, b.sent) || !slices.Equal(a.killer.plan, b.killer.plan) {
		t.Error("the same seed made other orders or another plan")
	}
	if slices.Equal(a.sent, other.sent) || slices.Equal(a.killer.plan, other.killer.plan) {
		t.Error("another seed made the same orders or the same plan")
	}
	text := func(g *game) (s []string) {
		for _, m := range g.messages() {
			s = append(s, fmt.Sprintf("%s %s", m.Key, m.Payload))
		}
		return s
	}
	if first, again, differs := text(a), text(b), text(other); !slices.Equal(first, again) || slices.Equal(first, differs) {
		t.Error("the messages do not follow from the seed")
	}
	poison := 0
	for _, o := range a.sent {
		if o.Customer == poisonCustomer {
			poison++
		}
	}
	if poison != 5 {
		t.Errorf("%d poison orders, want 5", poison)
	}
}

// Whether an attempt fails depends on seed, key and its number, not on the process. Failures are
// about as frequent as configured.
func TestSeed_DecidesHandlerErrors(t *testing.T) {
	t.Parallel()
	c := workerConfig{Seed: 7, HandlerErrors: 0.2}
	failed := 0
	for n := range 5000 {
		d := pawl.Delivery{Key: fmt.Sprintf("order-%06d", n), Receives: 1 + n%3}
		first, again := c.unlucky(d), c.unlucky(d)
		if first != again {
			t.Fatal("the same try was decided twice, differently")
		}
		if first {
			failed++
		}
	}
	if failed < 850 || failed > 1150 {
		t.Errorf("%d of 5000 tries failed, want about 1000", failed)
	}
}

// Every order is sent at least once, 3 times on average, and half of them only once.
func TestMessages_CoverEveryOrder(t *testing.T) {
	t.Parallel()
	g := gameOf(7)
	sent := map[string]int{}
	all := g.messages()
	for _, m := range all {
		sent[m.Key]++
	}
	once := 0
	for _, n := range sent {
		if n == 1 {
			once++
		}
	}
	if len(sent) != 300 || once < 120 || once > 210 || len(all) < 700 || len(all) > 1100 {
		t.Errorf("%d orders, %d of them once, in %d messages", len(sent), once, len(all))
	}
}

// The portions are the whole, and the first is never empty, because no kill comes before a message.
func TestShare_FirstPortionIsNeverEmpty(t *testing.T) {
	t.Parallel()
	for messages := 1; messages < 30; messages++ {
		for portions := 1; portions < 40; portions++ {
			if share(messages, 0, portions) != 0 || share(messages, 1, portions) == 0 || share(messages, portions, portions) != messages {
				t.Fatalf("%d messages in %d portions", messages, portions)
			}
		}
	}
}
