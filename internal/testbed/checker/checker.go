// Package checker judges a run from outside: it compares the intents with the resulting business
// rows. It imports nothing from Pawl, so it cannot share Pawl's mistakes. A test enforces that.
package checker

import "fmt"

// An Order is one intent, and also one row of the table of orders.
type Order struct {
	Key      string // names the order
	Customer string
	Cents    int64
}

// A LedgerEntry is one row of the ledger. Every order has exactly one entry with the same amount.
type LedgerEntry struct {
	Key   string
	Cents int64
}

// A History is the input of Judge.
type History struct {
	Sent   []Order       // each intent once, as first sent
	Orders []Order       // rows
	Ledger []LedgerEntry // rows
	// Balances are by customer. They are maintained by addition, so a doubled effect shows even if
	// its row was deleted.
	Balances    map[string]int64
	DeadLetters map[string]Order // by key: the stored payloads

	Shipping  bool    // whether each order must have led to one shipment, through another queue
	Shipments []Order // rows

	Paying  bool    // whether each order must have been charged once by a provider, and mailed once
	Charges []Order // performed by the provider
	Mails   []Order
}

// A Verdict counts effects and violations.
type Verdict struct {
	Intents int `json:"intents"`
	Effects int `json:"effects"` // order rows
	Shipped int `json:"shipped"` // shipment rows, if there is a second hop
	Charged int `json:"charged"` // at the provider, if there are payments
	Mailed  int `json:"mailed"`  // at the provider, if there are payments
	// Doubled counts intents with more than one order, ledger row, shipment, charge or mail.
	Doubled int `json:"doubled"`
	Lost    int `json:"lost"` // intents with neither an effect nor a dead letter
	// DeadLetters counts intents stored with their payload for an operator to resolve.
	DeadLetters int `json:"dead_letters"`
	Altered     int `json:"altered"` // rows or dead letters that differ from what was sent
	// Unexpected counts rows without an intent, dead letters of intents with an effect, and wrong
	// balances.
	Unexpected int `json:"unexpected"`
	// Torn counts orders without their ledger entry and entries without their order.
	Torn int `json:"torn"`

	// Violations describe the first 20 violations.
	Violations []string `json:"violations,omitempty"`
}

// OK reports whether there is no violation.
func (v Verdict) OK() bool {
	return v.Doubled+v.Lost+v.Altered+v.Unexpected+v.Torn == 0
}

// maxViolations bounds the descriptions. The counts are complete.
const maxViolations = 20

// Judge compares the history with the promise: each intent took effect once, whole and unaltered,
// or is dead-lettered.
func Judge(h History) Verdict {
	v := Verdict{Intents: len(h.Sent), Effects: len(h.Orders), Shipped: len(h.Shipments), Charged: len(h.Charges), Mailed: len(h.Mails)}
	orders := group(h.Orders, func(o Order) string { return o.Key })
	ledger := group(h.Ledger, func(e LedgerEntry) string { return e.Key })
	sent := map[string]bool{}
	balances := map[string]int64{}
	for _, want := range h.Sent {
		sent[want.Key] = true
		v.judgeIntent(want, orders[want.Key], ledger[want.Key], h.DeadLetters)
		if len(orders[want.Key]) > 0 {
			balances[want.Customer] += want.Cents
		}
	}
	for key := range orders {
		v.expect(sent[key], &v.Unexpected, "order %s was never asked for", key)
	}
	for key := range ledger {
		v.expect(sent[key], &v.Unexpected, "ledger entry %s was never asked for", key)
	}
	for key := range h.DeadLetters {
		v.expect(sent[key], &v.Unexpected, "dead letter %s was never sent", key)
	}
	if h.Shipping {
		v.judgeEach("shipped", orders, h.Shipments, nil)
	}
	if h.Paying {
		v.judgeEach("charged", orders, h.Charges, h.DeadLetters)
		v.judgeEach("mailed", orders, h.Mails, h.DeadLetters)
	}
	for customer := range union(balances, h.Balances) {
		v.expect(h.Balances[customer] == balances[customer], &v.Unexpected,
			"the balance of %s is %d, its orders add up to %d", customer, h.Balances[customer], balances[customer])
	}
	return v
}

func (v *Verdict) judgeIntent(want Order, orders []Order, ledger []LedgerEntry, dead map[string]Order) {
	letter, isDead := dead[want.Key]
	if isDead {
		v.DeadLetters++
		v.expect(letter == want, &v.Altered, "dead letter %s says %+v, sent was %+v", want.Key, letter, want)
		v.expect(len(orders) == 0 && len(ledger) == 0, &v.Unexpected, "%s is a dead letter and took effect", want.Key)
	}
	v.expect(isDead || len(orders)+len(ledger) > 0, &v.Lost, "%s left no trace", want.Key)
	v.expect(len(orders) <= 1 && len(ledger) <= 1, &v.Doubled, "%s has %d orders and %d ledger entries", want.Key, len(orders), len(ledger))
	v.expect((len(orders) > 0) == (len(ledger) > 0), &v.Torn, "%s has %d orders and %d ledger entries", want.Key, len(orders), len(ledger))
	for _, got := range orders {
		v.expect(got == want, &v.Altered, "order %s is %+v, sent was %+v", want.Key, got, want)
	}
	for _, got := range ledger {
		v.expect(got.Cents == want.Cents, &v.Altered, "ledger entry %s is %d cents, sent was %d", want.Key, got.Cents, want.Cents)
	}
}

// judgeEach requires that the action happened once for each order, with the order's values, and for
// no other. For a dead-lettered intent it may have happened once or not at all.
func (v *Verdict) judgeEach(done string, orders map[string][]Order, all []Order, kept map[string]Order) {
	did := group(all, func(o Order) string { return o.Key })
	for key, of := range orders {
		got := did[key]
		v.expect(len(got) > 0, &v.Lost, "%s took effect and was not %s", key, done)
		for _, o := range got {
			v.expect(o == of[0], &v.Altered, "%s was %s as %+v, its order is %+v", key, done, o, of[0])
		}
	}
	for key, got := range did {
		_, isKept := kept[key]
		v.expect(len(got) == 1, &v.Doubled, "%s was %s %d times", key, done, len(got))
		v.expect(len(orders[key]) > 0 || isKept, &v.Unexpected, "%s was %s without an order", key, done)
	}
}

func (v *Verdict) expect(holds bool, counter *int, format string, args ...any) {
	if holds {
		return
	}
	*counter++
	if len(v.Violations) < maxViolations {
		v.Violations = append(v.Violations, fmt.Sprintf(format, args...))
	}
}

func group[T any](rows []T, key func(T) string) map[string][]T {
	groups := make(map[string][]T, len(rows))
	for _, r := range rows {
		groups[key(r)] = append(groups[key(r)], r)
	}
	return groups
}

func union(a, b map[string]int64) map[string]bool {
	all := make(map[string]bool, len(a))
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return all
}
