package vet

import (
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// A decision is a branch on the result of a SELECT.
type decision struct {
	branch *ssa.If
	value  bool // on what was read, and not on whether there is a row
	failed bool // on any error: only what runs after an error counts
	onErr  int  // the successor that runs then
}

func decides(d decision, act event) bool {
	b := d.branch.Block()
	first, second := reachable(b.Succs[0], b)[act.at.Block()], reachable(b.Succs[1], b)[act.at.Block()]
	if d.failed {
		return first != second && (first && d.onErr == 0 || second && d.onErr == 1)
	}
	return first != second
}

// answers are the values that hold the result of a SELECT.
type answers struct {
	errs   []ssa.Value
	values []ssa.Value
	dests  []ssa.Value // the destinations of a Scan
}

func (a *answers) add(v ssa.Value) {
	if isError(v.Type()) {
		a.errs = append(a.errs, v)
	} else {
		a.values = append(a.values, v)
	}
}

// addResults adds the results of a call.
func (a *answers) addResults(at *ssa.Call) {
	if at.Call.Signature().Results().Len() == 1 {
		a.add(at)
		return
	}
	for _, instr := range *at.Referrers() {
		if x, is := instr.(*ssa.Extract); is {
			a.add(x)
		}
	}
}

// decisions returns the branches on the result of a SELECT.
func decisions(read event) []decision {
	at, is := read.at.(*ssa.Call)
	if !is {
		return nil
	}
	a := &answers{}
	a.addResults(at)
	if !read.via {
		a.addScanned(read, at)
		a.addRows(at)
	}
	return a.decisions()
}

// addScanned adds what is scanned from a row, or is written through an argument of the call.
func (a *answers) addScanned(read event, at *ssa.Call) {
	for _, scan := range scansOf(at) {
		if isError(scan.Type()) {
			a.errs = append(a.errs, scan)
		}
		a.dests = append(a.dests, newCall(scan).args...)
	}
	a.values = slices.DeleteFunc(a.values, isRow)
	for _, arg := range read.call.args {
		if isPointer(arg.Type()) && kindOf(arg.Type()) == noHandle {
			a.dests = append(a.dests, arg)
		} else if m, is := arg.(*ssa.MakeInterface); is && isPointer(m.X.Type()) {
			a.dests = append(a.dests, m)
		}
	}
}

// addRows adds the results of Next, and of functions that collect the rows. A loop over the rows
// decides nothing.
func (a *answers) addRows(at *ssa.Call) {
	for _, rows := range rowsOf(at) {
		for _, instr := range *rows.Referrers() {
			c, is := instr.(*ssa.Call)
			if !is {
				continue
			}
			switch called := newCall(c); {
			case called.recv == rows && called.name == "Next":
				if !reachesAgain(c.Block(), at.Block()) {
					a.values = append(a.values, c)
				}
			case called.recv != rows && c.Call.Signature().Results().Len() > 1:
				a.addResults(c)
			}
		}
	}
}

// decisions returns the branches on the answers.
func (a *answers) decisions() (all []decision) {
	found := map[*ssa.If]bool{} // branches on whether there is a row
	for _, err := range a.errs {
		for _, instr := range *err.Referrers() {
			switch instr := instr.(type) {
			case *ssa.Call:
				if c := newCall(instr); isNoRows(c) || len(c.args) == 1 && noRows.MatchString(c.name) {
					for branch := range branches(instr) {
						all, found[branch] = append(all, decision{branch: branch}), true
					}
				}
			case *ssa.BinOp:
				all = append(all, comparisons(instr)...)
			}
		}
	}
	for _, v := range a.values {
		for branch := range branches(v) {
			if !found[branch] {
				all = append(all, decision{branch: branch, value: true})
			}
		}
	}
	for _, dest := range a.dests {
		for _, cell := range cells(dest) {
			for _, load := range loads(cell) {
				for branch := range branches(load) {
					all = append(all, decision{branch: branch, value: true})
				}
			}
		}
	}
	return all
}

// comparisons returns the branches on a comparison of an error with nil, or with a value such as
// sql.ErrNoRows.
func comparisons(of *ssa.BinOp) (all []decision) {
	withNil := isNilConst(of.X) || isNilConst(of.Y)
	if !withNil && !noRowsValue(of.X) && !noRowsValue(of.Y) {
		return nil
	}
	onErr := 0
	if of.Op == token.EQL {
		onErr = 1
	}
	for branch := range branches(of) {
		all = append(all, decision{branch: branch, failed: withNil, onErr: onErr})
	}
	return all
}

func isPointer(t types.Type) bool {
	_, is := t.Underlying().(*types.Pointer)
	return is
}

// reachesAgain reports whether a block can run again before another one does.
func reachesAgain(b, before *ssa.BasicBlock) bool {
	for _, next := range b.Succs {
		if reachable(next, before)[b] {
			return true
		}
	}
	return false
}

func isNilConst(v ssa.Value) bool {
	c, is := v.(*ssa.Const)
	return is && c.IsNil()
}

// isRow reports whether a value is a row, rows or a result on which Scan is called.
func isRow(v ssa.Value) bool { return has(v.Type(), "Scan") }

// rowsOf returns the rows that a call of Query returns.
func rowsOf(at *ssa.Call) (all []ssa.Value) {
	if has(at.Type(), "Next") {
		return []ssa.Value{at}
	}
	for _, instr := range *at.Referrers() {
		if x, is := instr.(*ssa.Extract); is && has(x.Type(), "Next") {
			all = append(all, x)
		}
	}
	return all
}

// cells returns the variables to which the destinations of a Scan point.
func cells(dest ssa.Value) (all []ssa.Value) {
	switch d := dest.(type) {
	case *ssa.MakeInterface:
		return cells(d.X)
	case *ssa.Alloc, *ssa.FieldAddr:
		return []ssa.Value{d}
	case *ssa.Slice:
		if a, is := d.X.(*ssa.Alloc); is {
			for _, at := range inside(a)[1:] {
				for _, s := range storesTo(at) {
					all = append(all, cells(s.Val)...)
				}
			}
		}
	}
	return all
}

// loads returns the places where a variable, or a field of it, is read.
func loads(cell ssa.Value) (all []ssa.Value) {
	for _, addr := range inside(cell) {
		if addr.Referrers() == nil {
			continue
		}
		for _, instr := range *addr.Referrers() {
			if l, is := instr.(*ssa.UnOp); is && l.Op == token.MUL {
				all = append(all, l)
			}
		}
	}
	if f, is := cell.(*ssa.FieldAddr); is { // another address of the same field
		if f.X.Referrers() != nil {
			for _, instr := range *f.X.Referrers() {
				switch other := instr.(type) {
				case *ssa.FieldAddr:
					if other != f && other.Field == f.Field && other.Referrers() != nil {
						for _, use := range *other.Referrers() {
							if l, is := use.(*ssa.UnOp); is && l.Op == token.MUL {
								all = append(all, l)
							}
						}
					}
				}
			}
		}
	}
	return all
}

// branches returns the branches whose condition is computed from a value.
func branches(v ssa.Value) map[*ssa.If]bool {
	all, seen := map[*ssa.If]bool{}, map[ssa.Value]bool{}
	var follow func(v ssa.Value)
	follow = func(v ssa.Value) {
		if seen[v] || v.Referrers() == nil {
			return
		}
		seen[v] = true
		for _, instr := range *v.Referrers() {
			switch instr := instr.(type) {
			case *ssa.If:
				all[instr] = true
			case *ssa.BinOp, *ssa.UnOp, *ssa.Convert, *ssa.ChangeType, *ssa.Phi, *ssa.Field, *ssa.FieldAddr, *ssa.Extract, *ssa.MakeInterface:
				follow(instr.(ssa.Value))
			case *ssa.Call:
				if b, is := instr.Type().Underlying().(*types.Basic); is && b.Info()&(types.IsBoolean|types.IsNumeric) != 0 {
					follow(instr)
				}
			}
		}
	}
	follow(v)
	return all
}
