package vet

import (
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

var markApart = newAnalyzer("markapart", "mark-and-effect-in-one-transaction",
	"report a processed-message row that is written in another transaction than the effect\n\n"+
		"If the process dies between the two commits, the message is marked without its effect, or the effect happens twice.",
	func(r *reporter, p *program) {
		for _, fn := range p.funcs {
			if fn.Parent() == nil {
				p.checkMarks(r, fn)
			}
		}
	})

func (p *program) checkMarks(r *reporter, fn *ssa.Function) {
	var marks, effects, others []event
	for _, part := range within(fn) {
		for _, e := range p.eventsOf(part) {
			switch {
			case e.what == isStmt && e.sql.marks() != "":
				marks = append(marks, e)
			case e.what == isStmt && len(e.sql.writes()) > 0:
				effects = append(effects, e)
			case e.what == isLend && begun(e.handle):
				others = append(others, e)
			}
		}
	}
	for _, mark := range marks {
		table := mark.sql.marks()
		touches := func(e event) bool { return slices.Contains(e.sql.writes(), table) }
		if slices.ContainsFunc(effects, func(e event) bool { return slices.Contains(e.sql.updates, table) }) ||
			slices.ContainsFunc(marks, func(e event) bool { return e.at != mark.at && e.sql.marks() == table && e.kind == txKind }) {
			continue // a reservation that is completed later
		}
		for _, effect := range append(effects, others...) {
			if effect.sql != nil && touches(effect) {
				continue
			}
			if why := apart(mark, effect); why != "" {
				r.report(mark.pos(), "the row of "+table+" that marks the message as processed "+why+": a crash in between loses the effect or repeats it")
				break
			}
		}
	}
}

// apart says how a mark and an effect are separated, or returns "".
func apart(mark, effect event) string {
	switch {
	case mark.kind == eitherKind && effect.kind == txKind && mark.handle != nil && begunOn(effect.handle) == mark.handle:
		return "is written outside of the transaction of its effect"
	case mark.kind == poolKind && effect.kind == poolKind:
		return "and its effect are written without a transaction"
	case mark.kind == poolKind && effect.kind == txKind:
		return "is written outside of the transaction of its effect"
	case mark.kind == txKind && effect.kind == poolKind:
		return "is written in a transaction, and its effect outside of it"
	case mark.kind == txKind && effect.kind == txKind && begun(mark.handle) && begun(effect.handle) && outermost(mark.handle) != outermost(effect.handle):
		return "is written in another transaction than its effect"
	}
	return ""
}

// begun reports whether it is known where a transaction begins: in a call, or before the function.
func begun(handle any) bool {
	switch handle.(type) {
	case *ssa.Call, *ssa.Parameter:
		return true
	}
	return false
}

// begunOn returns the handle on which a transaction was begun, or nil.
func begunOn(handle any) any {
	if at, is := handle.(*ssa.Call); is {
		if c := newCall(at); c.recv != nil && strings.HasPrefix(c.name, "Begin") {
			return rootOf(c.recv)
		}
	}
	return nil
}

// outermost returns the transaction in which savepoints were set, or the handle itself.
func outermost(handle any) any {
	at, is := handle.(*ssa.Call)
	if !is {
		return handle
	}
	if c := newCall(at); c.recv != nil && strings.HasPrefix(c.name, "Begin") && isTx(c.recv.Type()) {
		return outermost(rootOf(c.recv))
	}
	return handle
}
