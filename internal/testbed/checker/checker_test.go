package checker_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/checker"
)

// good returns a history without a fault: five effects and one dead letter.
func good() checker.History {
	h := checker.History{Shipping: true, Paying: true, Balances: map[string]int64{}, DeadLetters: map[string]checker.Order{}}
	for n := range 5 {
		o := checker.Order{Key: fmt.Sprint("order-", n), Customer: fmt.Sprint("customer-", n%2), Cents: int64(100 + n)}
		h.Sent = append(h.Sent, o)
		h.Orders = append(h.Orders, o)
		h.Shipments = append(h.Shipments, o)
		h.Charges = append(h.Charges, o)
		h.Mails = append(h.Mails, o)
		h.Ledger = append(h.Ledger, checker.LedgerEntry{Key: o.Key, Cents: o.Cents})
		h.Balances[o.Customer] += o.Cents
	}
	poison := checker.Order{Key: "poison", Customer: "customer-9", Cents: 1}
	h.Sent = append(h.Sent, poison)
	h.DeadLetters["poison"] = poison
	h.Charges = append(h.Charges, poison) // charged, and then dead-lettered
	return h
}

func TestJudge_AcceptsAGoodHistory(t *testing.T) {
	t.Parallel()
	v := checker.Judge(good())
	if !v.OK() || v.Intents != 6 || v.Effects != 5 || v.Shipped != 5 || v.Charged != 6 || v.Mailed != 5 || v.DeadLetters != 1 {
		t.Errorf("%+v", v)
	}
}

// Each fault planted into a good history is found and counted under its own name.
func TestJudge_FindsEveryPlantedFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant func(*checker.History)
		found func(checker.Verdict) int
	}{
		"dropped": {func(h *checker.History) {
			h.Orders, h.Ledger, h.Shipments, h.Charges, h.Mails = h.Orders[1:], h.Ledger[1:], h.Shipments[1:], h.Charges[1:], h.Mails[1:]
			h.Balances["customer-0"] -= 100
		},
			func(v checker.Verdict) int { return v.Lost }},
		"dead letter dropped": {func(h *checker.History) { delete(h.DeadLetters, "poison") },
			func(v checker.Verdict) int { return v.Lost }},
		"doubled": {func(h *checker.History) {
			h.Orders = append(h.Orders, h.Orders[2])
			h.Ledger = append(h.Ledger, h.Ledger[2])
			h.Balances["customer-0"] += h.Orders[2].Cents
		}, func(v checker.Verdict) int { return v.Doubled }},
		"doubled in the balance alone": {func(h *checker.History) { h.Balances["customer-1"] += 101 },
			func(v checker.Verdict) int { return v.Unexpected }},
		"altered order":       {func(h *checker.History) { h.Orders[3].Customer = "somebody else" }, func(v checker.Verdict) int { return v.Altered }},
		"altered ledger":      {func(h *checker.History) { h.Ledger[3].Cents++ }, func(v checker.Verdict) int { return v.Altered }},
		"altered dead letter": {func(h *checker.History) { h.DeadLetters["poison"] = checker.Order{Key: "poison"} }, func(v checker.Verdict) int { return v.Altered }},
		"order without entry": {func(h *checker.History) { h.Ledger = h.Ledger[1:] }, func(v checker.Verdict) int { return v.Torn }},
		"entry without order": {func(h *checker.History) { h.Orders = h.Orders[1:]; h.Balances["customer-0"] -= 100 }, func(v checker.Verdict) int { return v.Torn }},
		"never asked for": {func(h *checker.History) { h.Orders = append(h.Orders, checker.Order{Key: "x"}) },
			func(v checker.Verdict) int { return v.Unexpected }},
		"not shipped": {func(h *checker.History) { h.Shipments = h.Shipments[1:] }, func(v checker.Verdict) int { return v.Lost }},
		"shipped twice": {func(h *checker.History) { h.Shipments = append(h.Shipments, h.Shipments[0]) },
			func(v checker.Verdict) int { return v.Doubled }},
		"altered shipment": {func(h *checker.History) { h.Shipments[1].Cents++ }, func(v checker.Verdict) int { return v.Altered }},
		"shipped without an order": {func(h *checker.History) { h.Shipments = append(h.Shipments, checker.Order{Key: "x"}) },
			func(v checker.Verdict) int { return v.Unexpected }},
		"not charged":   {func(h *checker.History) { h.Charges = h.Charges[1:] }, func(v checker.Verdict) int { return v.Lost }},
		"charged twice": {func(h *checker.History) { h.Charges = append(h.Charges, h.Charges[2]) }, func(v checker.Verdict) int { return v.Doubled }},
		"charged twice and kept": {func(h *checker.History) { h.Charges = append(h.Charges, h.DeadLetters["poison"]) },
			func(v checker.Verdict) int { return v.Doubled }},
		"another charge": {func(h *checker.History) { h.Charges[1].Cents++ }, func(v checker.Verdict) int { return v.Altered }},
		"charged without an order": {func(h *checker.History) { h.Charges = append(h.Charges, checker.Order{Key: "x"}) },
			func(v checker.Verdict) int { return v.Unexpected }},
		"not mailed":   {func(h *checker.History) { h.Mails = h.Mails[1:] }, func(v checker.Verdict) int { return v.Lost }},
		"mailed twice": {func(h *checker.History) { h.Mails = append(h.Mails, h.Mails[2]) }, func(v checker.Verdict) int { return v.Doubled }},
		"dead letter took effect": {func(h *checker.History) { h.DeadLetters["order-1"] = h.Sent[1] },
			func(v checker.Verdict) int { return v.Unexpected }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := good()
			c.plant(&h)
			v := checker.Judge(h)
			if v.OK() || c.found(v) == 0 || len(v.Violations) == 0 {
				t.Errorf("not found: %+v", v)
			}
		})
	}
}

// The checker shares no code with what it judges.
func TestChecker_ImportsNothingOfPawl(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"checker.go", "order.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if strings.Contains(i.Path.Value, ".") {
				t.Errorf("%s imports %s; only the standard library is allowed", name, i.Path.Value)
			}
		}
	}
}

// Each line has its own order. Gaps are allowed, and every late effect is returned.
func TestOutOfOrder(t *testing.T) {
	t.Parallel()
	in := func(line string, numbers ...int) (steps []checker.Step) {
		for _, n := range numbers {
			steps = append(steps, checker.Step{Line: line, Number: n})
		}
		return steps
	}
	if late := checker.OutOfOrder(slices.Concat(in("a", 0, 1, 5), in("b", 3, 3, 4), in("a", 6))); len(late) != 0 {
		t.Errorf("late: %v", late)
	}
	if late := checker.OutOfOrder(slices.Concat(in("a", 2, 0, 1), in("b", 0), in("a", 3))); !slices.Equal(late, in("a", 0, 1)) {
		t.Errorf("late: %v", late)
	}
}
