package vet

import (
	"go/token"
	"slices"

	"golang.org/x/tools/go/ssa"
)

var ackBeforeCommit = newAnalyzer("ackbeforecommit", "acknowledge-after-commit",
	"report messages that are acknowledged before the transaction commits\n\n"+
		"If the commit fails or the process dies in between, the broker does not deliver the message again, and its effect is lost.",
	func(r *reporter, p *program) {
		for _, fn := range p.funcs {
			p.checkAcks(r, fn)
		}
	})

func (p *program) checkAcks(r *reporter, fn *ssa.Function) {
	var acks, commits, writes []event
	receives := map[ssa.Instruction]bool{}
	for _, e := range p.eventsOf(fn) {
		switch {
		case e.what == isAck && e.sure:
			acks = append(acks, e)
		case e.what == isCommit || e.what == isBlock:
			commits = append(commits, e)
		case e.what == isStmt && e.kind == poolKind && len(e.sql.writes()) > 0 && !e.deferred:
			writes = append(writes, e)
		case e.what == isReceive && !e.via:
			receives[e.at] = true
		}
	}
	for _, block := range fn.Blocks {
		for _, instr := range block.Instrs {
			if next, is := instr.(*ssa.UnOp); is && next.Op == token.ARROW {
				receives[instr] = true
			}
		}
	}
	if tx := lentAround(fn); tx != nil && !commitsItself(commits, tx) {
		for _, ack := range acks {
			if ack.surely {
				r.report(ack.pos(), "the message is acknowledged inside the transaction, before the caller commits it: if the commit fails, the message is lost")
			}
		}
	}
	for _, ack := range acks {
		stops := sources(ack.message...)
		for instr := range receives {
			stops[instr] = true
		}
		for _, commit := range commits {
			if commit.at == ack.at || commit.via && !commit.inline && !related(ack, commit) {
				continue
			}
			switch {
			case ack.deferred && (commit.deferred || reaches(ack.at, commit.at, stops)):
				r.report(ack.pos(), "the message is acknowledged also if the commit fails, because the acknowledgement is deferred")
			case !ack.deferred && commit.deferred && (reaches(commit.at, ack.at, nil) || reaches(ack.at, commit.at, stops)):
				r.report(ack.pos(), "the message is acknowledged before the deferred commit: if the commit fails, the message is lost")
			case !ack.deferred && !commit.deferred && reaches(ack.at, commit.at, stops):
				r.report(ack.pos(), "the message is acknowledged before the transaction commits: if the commit fails, the message is lost")
			}
		}
		// A statement outside of a transaction commits by itself.
		if !ack.surely || slices.ContainsFunc(append(writes, commits...), func(e event) bool { return reaches(e.at, ack.at, nil) && !ack.deferred }) {
			continue
		}
		for _, write := range writes {
			if write.via && !write.inline && !related(ack, write) || !reaches(ack.at, write.at, stops) {
				continue
			}
			if ack.deferred {
				r.report(ack.pos(), "the message is acknowledged also if its statement fails, because the acknowledgement is deferred")
			} else {
				r.report(ack.pos(), "the message is acknowledged before its statement runs: if the statement fails, the message is lost")
			}
		}
	}
}

// lentAround returns the transaction that a function, or the function around a closure, gets from
// its caller.
func lentAround(fn *ssa.Function) *ssa.Parameter {
	for ; fn != nil; fn = fn.Parent() {
		if tx := lent(fn); tx != nil {
			return tx
		}
		if fn.Parent() == nil || later(fn) {
			return nil
		}
	}
	return nil
}

func commitsItself(commits []event, tx *ssa.Parameter) bool {
	for _, c := range commits {
		if c.handle == any(tx) {
			return true
		}
	}
	return false
}

// related reports whether a call that commits gets the message, or a part of it.
func related(ack, commit event) bool {
	of := map[any]bool{}
	for _, v := range ack.message {
		for s := range sources(v) {
			if sv, is := s.(ssa.Value); is {
				of[baseOf(sv)] = true
			}
		}
		of[baseOf(v)] = true
	}
	for _, arg := range commit.at.Common().Args {
		if isContext(arg.Type()) || kindOf(arg.Type()) != noHandle {
			continue
		}
		if b := baseOf(arg); b != nil && of[b] && !sameReceiver(b, commit) {
			return true
		}
		for s := range sources(arg) {
			if sv, is := s.(ssa.Value); is && isMessage(sv.Type()) && of[baseOf(sv)] {
				return true
			}
		}
	}
	return false
}

// sameReceiver reports whether a value is only the receiver that both calls share.
func sameReceiver(b any, commit event) bool {
	callee := commit.at.Common().StaticCallee()
	return callee != nil && callee.Signature.Recv() != nil && len(commit.at.Common().Args) > 0 && baseOf(commit.at.Common().Args[0]) == b
}

// baseOf is rootOf without fields.
func baseOf(v ssa.Value) any {
	root := rootOf(v)
	for {
		f, is := root.(field)
		if !is {
			return root
		}
		root = f.of
	}
}
