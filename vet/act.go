package vet

import (
	"go/constant"
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
