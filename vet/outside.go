package vet

import "golang.org/x/tools/go/ssa"

var callInTx = newAnalyzer("callintx", "no-calls-inside-a-transaction",
	"report calls to other systems and second connections inside a transaction\n\n"+
		"The transaction can roll back, the call cannot. While the call waits, the transaction holds its locks and its connection.",
	func(r *reporter, p *program) {
		for _, fn := range p.funcs {
			p.checkLent(r, fn)
			p.checkOpen(r, fn)
		}
	})

// checkLent looks at functions that get a transaction, and at the closures in them.
func (p *program) checkLent(r *reporter, fn *ssa.Function) {
	tx := lent(fn)
	if tx == nil || maybeNil(tx) {
		return
	}
	ends := map[ssa.Instruction]bool{}
	for _, e := range p.eventsOf(fn) {
		if (e.what == isCommit || e.what == isRollback) && e.handle == any(tx) && !e.deferred {
			ends[e.at] = true
		}
	}
	for _, part := range within(fn) {
		for _, e := range p.eventsOf(part) {
			if e.deferred || part == fn && !reaches(fn.Blocks[0].Instrs[0], e.at, ends) && e.at != fn.Blocks[0].Instrs[0] || derived(e, tx) {
				continue
			}
			switch {
			case e.what == isOutside:
				r.report(e.pos(), e.text+" is called inside a transaction: a rollback does not undo the call, and the transaction waits for it")
			case onOtherConnection(e) && captured(e):
				r.report(e.pos(), "a second connection is used inside a transaction: its statements do not see or join the transaction, and may wait for it")
			}
		}
	}
}

func onOtherConnection(e event) bool {
	return e.kind == poolKind && (e.what == isStmt || e.what == isBegin || e.what == isUse || e.what == isBlock)
}

// captured reports whether a pool comes from outside: a field, a variable of the package, or of the
// function around.
func captured(e event) bool {
	switch e.handle.(type) {
	case field, *ssa.Global, *ssa.Call:
		return true
	case *ssa.Parameter:
		// A parameter of this function is given on purpose. One of the function around is captured.
		return e.handle.(*ssa.Parameter).Parent() != e.at.Parent()
	}
	return false
}

// derived reports whether what is called was made from the transaction, as an outbox publisher is.
func derived(e event, tx ssa.Value) bool {
	from := e.recv
	if e.via { // the function that is called got the transaction, and is looked at by itself
		for _, arg := range e.at.Common().Args {
			if arg == tx || rootOf(arg) == rootOf(tx) || sourcesHave(arg, tx) {
				return true
			}
		}
		return false
	}
	if from == nil {
		from = e.tx
	}
	if from == nil {
		return false
	}
	root := rootOf(from)
	if v, is := root.(ssa.Value); is && v != from {
		if sourcesHave(v, tx) {
			return true
		}
	}
	return sourcesHave(from, tx)
}

func sourcesHave(v, tx ssa.Value) bool {
	for instr := range sources(v) {
		for _, operand := range instr.Operands(nil) {
			if *operand != nil && (*operand == tx || rootOf(*operand) == rootOf(tx)) {
				return true
			}
		}
	}
	return false
}

// checkOpen looks at functions that begin a transaction and commit it themselves.
func (p *program) checkOpen(r *reporter, fn *ssa.Function) {
	events := p.eventsOf(fn)
	for _, begin := range events {
		if begin.what != isBegin || begin.via || begin.at.Value() == nil {
			continue
		}
		ends, commits := map[ssa.Instruction]bool{}, []event(nil)
		for _, e := range events {
			if (e.what == isCommit || e.what == isRollback) && e.handle == any(begin.at.Value()) && !e.deferred {
				ends[e.at] = true
				if e.what == isCommit {
					commits = append(commits, e)
				}
			}
		}
		restart := map[ssa.Instruction]bool{begin.at: true}
		for _, e := range events {
			open := (e.what == isOutside || onOtherConnection(e) && e.at != begin.at) && !e.deferred && !ends[e.at] && reaches(begin.at, e.at, ends) && !derived(e, begin.at.Value())
			if !open {
				continue
			}
			for _, c := range commits {
				if !reaches(e.at, c.at, restart) {
					continue
				}
				if e.what == isOutside {
					r.report(e.pos(), e.text+" is called inside a transaction: a rollback does not undo the call, and the transaction waits for it")
				} else if e.handle == begin.handle || captured(e) {
					r.report(e.pos(), "a second connection is used inside a transaction: its statements do not see or join the transaction, and may wait for it")
				}
				break
			}
		}
	}
}
