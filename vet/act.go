package vet

import (
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

var selectThenAct = newAnalyzer("selectthenact", "select-then-act",
	"report a SELECT that decides about an INSERT or UPDATE of the same table\n\n"+
		"Two transactions can read the same state and both act on it.",
	func(r *reporter, p *program) {
		for _, fn := range p.funcs {
			p.checkActs(r, fn)
		}
	})

func (p *program) checkActs(r *reporter, fn *ssa.Function) {
	events := p.eventsOf(fn)
	var reads, acts []event
	for _, e := range events {
		if e.what != isStmt || e.deferred {
			continue
		}
		if e.sql.verb == "select" && len(e.sql.writes()) == 0 && len(e.sql.reads) > 0 {
			reads = append(reads, e)
		}
		if len(e.sql.inserts)+len(e.sql.updates) > 0 {
			acts = append(acts, e)
		}
	}
	if len(reads) == 0 || len(acts) == 0 || p.serialized(fn) {
		return
	}
	for _, read := range reads {
		for _, d := range decisions(read) {
			for _, act := range acts {
				if act.at == read.at || !decides(d, act) {
					continue
				}
				if table := raced(read, act, d); table != "" {
					r.report(act.pos(), "a SELECT on "+table+" decides about this statement, and nothing keeps another transaction from doing the same at the same time")
				}
			}
		}
	}
}

// raced returns the table that is read and then changed, or "".
func raced(read, act event, d decision) string {
	for _, table := range read.sql.reads {
		if slices.Contains(act.sql.inserts, table) && !conflict.MatchString(act.sql.text) && !strings.Contains(act.sql.text, "not exists") {
			return table
		}
		if slices.Contains(act.sql.updates, table) && act.sql.verb == "update" && d.value && assigns(act.sql, read.sql) {
			if where := act.sql.where(); where != "" && !strings.Contains(where, "select ") && !rechecks(act.sql, read.sql) {
				return table
			}
		}
	}
	return ""
}

var (
	assigned = regexp.MustCompile(`(\w+)\s*=\s*(now\(|\w*_timestamp|null\b)?`)
	words    = regexp.MustCompile(`\w+`)
)

// assigns reports whether an UPDATE sets a column that the SELECT has read. Setting a time or
// NULL again does no harm.
func assigns(update, read *statement) bool {
	_, set, _ := strings.Cut(update.text, " set ")
	set, _, _ = strings.Cut(set, " where ")
	list := read.selected()
	if strings.Contains(list, "exists") || strings.Contains(list, "count(") {
		return false
	}
	columns := words.FindAllString(list, -1)
	for _, m := range assigned.FindAllStringSubmatch(set, -1) {
		if slices.Contains(columns, m[1]) && m[2] == "" && !strings.HasSuffix(m[1], "_at") {
			return true
		}
	}
	return false
}

// rechecks reports whether an UPDATE repeats in its WHERE what was read, such as a status or
// version.
func rechecks(update, read *statement) bool {
	asked := words.FindAllString(read.where(), -1)
	for _, word := range words.FindAllString(update.where(), -1) {
		if word == "version" || slices.Contains(words.FindAllString(read.selected(), -1), word) && !slices.Contains(asked, word) {
			return true
		}
	}
	return false
}

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

// decisions returns the branches on the result of a SELECT.
func decisions(read event) (all []decision) {
	at, is := read.at.(*ssa.Call)
	if !is {
		return nil
	}
	var errs, values []ssa.Value
	var dests []ssa.Value
	results := at.Call.Signature().Results()
	add := func(v ssa.Value) {
		if isError(v.Type()) {
			errs = append(errs, v)
		} else {
			values = append(values, v)
		}
	}
	if results.Len() == 1 {
		add(at)
	} else {
		for _, instr := range *at.Referrers() {
			if x, is := instr.(*ssa.Extract); is {
				add(x)
			}
		}
	}
	if !read.via {
		for _, scan := range scansOf(at) {
			if isError(scan.Type()) {
				errs = append(errs, scan)
			}
			dests = append(dests, newCall(scan).args...)
		}
		values = slices.DeleteFunc(values, func(v ssa.Value) bool { return isRow(v) })
		for _, arg := range read.call.args {
			if _, pointer := arg.Type().Underlying().(*types.Pointer); pointer && kindOf(arg.Type()) == noHandle {
				dests = append(dests, arg)
			} else if m, is := arg.(*ssa.MakeInterface); is {
				if _, pointer := m.X.Type().Underlying().(*types.Pointer); pointer {
					dests = append(dests, m)
				}
			}
		}
		for _, v := range rowsOf(at) {
			for _, instr := range *v.Referrers() {
				c, is := instr.(*ssa.Call)
				if !is {
					continue
				}
				switch called := newCall(c); {
				case called.recv == v && called.name == "Next":
					if !reachesAgain(c.Block(), at.Block()) { // otherwise a loop over the rows
						values = append(values, c)
					}
				case called.recv == v:
				default: // a function that collects the rows
					if tuple, is := c.Type().(*types.Tuple); is && tuple.Len() > 0 {
						for _, use := range *c.Referrers() {
							if x, is := use.(*ssa.Extract); is {
								add(x)
							}
						}
					}
				}
			}
		}
	}
	seen := map[*ssa.If]bool{}
	for _, err := range errs {
		for _, instr := range *err.Referrers() {
			switch instr := instr.(type) {
			case *ssa.Call:
				if c := newCall(instr); isNoRows(c) || len(c.args) == 1 && noRows.MatchString(c.name) {
					for branch := range branches(instr) {
						all, seen[branch] = append(all, decision{branch: branch}), true
					}
				}
			case *ssa.BinOp:
				nilSide := isNilConst(instr.X) || isNilConst(instr.Y)
				if !nilSide && !noRowsValue(instr.X) && !noRowsValue(instr.Y) {
					continue
				}
				for branch := range branches(instr) {
					onErr := 0
					if instr.Op == token.EQL {
						onErr = 1
					}
					all = append(all, decision{branch: branch, failed: nilSide, onErr: onErr})
				}
			}
		}
	}
	for _, v := range values {
		for branch := range branches(v) {
			if !seen[branch] {
				all = append(all, decision{branch: branch, value: true})
			}
		}
	}
	for _, dest := range dests {
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

var (
	guards   = regexp.MustCompile(`(?i)lock|serializ|mutex|singleflight|leader`)
	expected = regexp.MustCompile(`(?i)^23505$|duplicate key|unique constraint|unique_violation|isolation level (?:serializ|repeatable)|advisory`)
	violated = regexp.MustCompile(`(?i)unique|duplicate|conflict|exists`)
)

// serialized reports whether something keeps two runs of a function apart: a lock, the isolation
// level, or a unique constraint whose violation is expected. Callers in the package count, if the
// function gets its transaction from them.
func (p *program) serialized(fn *ssa.Function) bool {
	if p.guarded(fn) {
		return true
	}
	top := fn
	for top.Parent() != nil {
		top = top.Parent()
	}
	if !slices.ContainsFunc(top.Params, func(v *ssa.Parameter) bool { return kindOf(v.Type()) != noHandle }) {
		return false
	}
	for _, caller := range p.funcs {
		for _, block := range caller.Blocks {
			for _, instr := range block.Instrs {
				for _, operand := range instr.Operands(nil) {
					if f, is := (*operand).(*ssa.Function); is && f == top && p.guarded(caller) {
						return true
					}
				}
			}
		}
	}
	return false
}

func (p *program) guarded(fn *ssa.Function) bool {
	for fn.Parent() != nil {
		fn = fn.Parent()
	}
	for _, part := range within(fn) {
		for _, e := range p.eventsOf(part) {
			if e.sql != nil && e.sql.locks() {
				return true
			}
			if e.call != nil && e.what == isBegin && isolated(e.call) {
				return true
			}
		}
		for _, block := range part.Blocks {
			for _, instr := range block.Instrs {
				if at, is := instr.(ssa.CallInstruction); is {
					c := newCall(at)
					if guards.MatchString(c.name) && !strings.HasPrefix(strings.ToLower(c.name), "unlock") && !strings.Contains(strings.ToLower(c.name), "block") {
						return true
					}
				}
			}
		}
	}
	return mentionsText(fn, expected) || expectsViolation(fn) || mentionsLevel(fn)
}

// mentionsText reports whether a string constant of a function matches.
func mentionsText(fn *ssa.Function, what *regexp.Regexp) bool {
	for _, part := range within(fn) {
		for _, block := range part.Blocks {
			for _, instr := range block.Instrs {
				for _, operand := range instr.Operands(nil) {
					c, is := (*operand).(*ssa.Const)
					if is && c.Value != nil && c.Value.Kind() == constant.String && what.MatchString(constant.StringVal(c.Value)) {
						return true
					}
				}
			}
		}
	}
	return false
}

// expectsViolation reports whether a function asks if an error is a unique violation:
// isDuplicate(err), or errors.Is(err, gorm.ErrDuplicatedKey).
func expectsViolation(fn *ssa.Function) bool {
	for _, part := range within(fn) {
		for _, block := range part.Blocks {
			for _, instr := range block.Instrs {
				at, is := instr.(*ssa.Call)
				if !is {
					continue
				}
				c := newCall(at)
				if !slices.ContainsFunc(c.args, func(a ssa.Value) bool { return isError(a.Type()) }) {
					continue
				}
				if violated.MatchString(c.name) {
					return true
				}
				if c.pkg == "errors" && c.name == "Is" && len(c.args) == 2 {
					if load, is := c.args[1].(*ssa.UnOp); is {
						if g, is := load.X.(*ssa.Global); is && violated.MatchString(g.Name()) {
							return true
						}
					}
				}
			}
		}
	}
	return false
}

func isolated(c *call) bool { return guards.MatchString(c.name) }

// mentionsLevel reports whether a function sets an isolation level above read committed.
func mentionsLevel(fn *ssa.Function) bool {
	for _, part := range within(fn) {
		for _, block := range part.Blocks {
			for _, instr := range block.Instrs {
				for _, operand := range instr.Operands(nil) {
					c, is := (*operand).(*ssa.Const)
					if !is || c.Value == nil {
						continue
					}
					switch typeName(c.Type()) {
					case "database/sql.IsolationLevel":
						const repeatableRead = 4 // as in database/sql
						if n, exact := constant.Int64Val(c.Value); exact && n >= repeatableRead {
							return true
						}
					case "github.com/jackc/pgx/v5.TxIsoLevel", "github.com/jackc/pgx/v4.TxIsoLevel":
						if level := constant.StringVal(c.Value); level == "serializable" || level == "repeatable read" {
							return true
						}
					}
				}
			}
		}
	}
	return false
}
