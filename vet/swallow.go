package vet

import (
	"go/constant"
	"go/token"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

var swallowedSQL = newAnalyzer("swallowedsql", "no-swallowed-sql-errors",
	"report SQL errors that are dropped, or only logged, inside a transaction or a message handler\n\n"+
		"In PostgreSQL a failed statement aborts its transaction: nothing of it is committed, though the function says that it succeeded.",
	func(r *reporter, p *program) {
		for _, fn := range p.funcs {
			p.checkErrors(r, fn)
		}
	})

func (p *program) checkErrors(r *reporter, fn *ssa.Function) {
	tx, handles := lentAround(fn), handlesMessages(fn)
	events := p.directOf(fn)
	if slices.ContainsFunc(events, func(e event) bool { return e.sql != nil && e.sql.savepoint() }) {
		return
	}
	for _, e := range events {
		at, is := e.at.(*ssa.Call)
		switch {
		case e.what == isCommit && !is:
			if p.wrote(fn, e) && e.sig.Results().Len() > 0 {
				r.report(e.pos(), "the error of COMMIT is dropped: the function reports success though nothing may be committed")
			}
			continue
		case e.what != isCommit && e.what != isStmt && e.what != isUse || !is:
			continue
		}
		inTx := tx != nil && e.handle == any(tx)
		if e.what != isCommit && !inTx && !handles || e.what == isCommit && !inTx && !p.wrote(fn, e) {
			continue
		}
		if e.what == isUse && e.kind == poolKind && !handles {
			continue
		}
		for _, result := range errorsOf(e.call, at) {
			what := "the error of a statement"
			if e.what == isCommit {
				what = "the error of COMMIT"
			}
			switch {
			case result.err == nil:
				r.report(e.pos(), what+" is dropped: "+consequence(e, inTx))
			case !returnsError(fn):
				if handles && e.what != isCommit && onlyLogged(result.err) && acksAfter(result.err, events) {
					r.report(e.pos(), what+" is only logged, and the message is acknowledged: it is acknowledged without its effect")
				}
			case onlyLogged(result.err) && returnsNil(result.err, e):
				r.report(e.pos(), what+" is only logged, and the function returns nil: "+consequence(e, inTx))
			case inTx && e.what == isStmt && e.sql.verb == "insert":
				if treatsAsDone(result.err) {
					r.report(e.pos(), "a unique violation is taken as success inside a transaction: PostgreSQL has aborted the transaction, and nothing of it is committed")
				}
			}
		}
	}
}

func consequence(e event, inTx bool) string {
	switch {
	case e.what == isCommit:
		return "the function reports success though nothing may be committed"
	case inTx:
		return "PostgreSQL has aborted the transaction, and nothing of it is committed"
	}
	return "the message is acknowledged without its effect"
}

// wrote reports whether a transaction changed rows before its COMMIT, as far as is visible.
func (p *program) wrote(fn *ssa.Function, commit event) bool {
	for fn.Parent() != nil {
		fn = fn.Parent()
	}
	for _, part := range within(fn) {
		for _, e := range p.eventsOf(part) {
			if e.handle == commit.handle && e.handle != nil && e.what == isStmt && len(e.sql.writes()) > 0 {
				return true
			}
		}
	}
	return false
}

func returnsError(fn *ssa.Function) bool {
	results := fn.Signature.Results()
	return results.Len() > 0 && isError(results.At(results.Len()-1).Type())
}

// handlesMessages reports whether a function, or the one around a closure, gets a received message.
func handlesMessages(fn *ssa.Function) bool {
	for ; fn != nil; fn = fn.Parent() {
		for i, p := range fn.Params {
			if (i > 0 || fn.Signature.Recv() == nil) && isMessage(p.Type()) {
				return true
			}
		}
		if fn.Parent() != nil && later(fn) {
			return false
		}
	}
	return false
}

// An outcome is the error of a call. It is nil if the code does not look at it.
type outcome struct{ err ssa.Value }

// errorsOf returns the errors of a call, or those of Scan on the row that it returns.
func errorsOf(c *call, at *ssa.Call) (all []outcome) {
	results := c.sig.Results()
	switch {
	case results.Len() == 0:
		return nil
	case isError(results.At(results.Len() - 1).Type()):
		if results.Len() == 1 {
			if used(at) {
				return []outcome{{at}}
			}
			return []outcome{{}}
		}
		for _, instr := range *at.Referrers() {
			if x, is := instr.(*ssa.Extract); is && x.Index == results.Len()-1 {
				if used(x) {
					return []outcome{{x}}
				}
			}
			if _, is := instr.(*ssa.Return); is {
				return nil
			}
		}
		return []outcome{{}}
	}
	for _, scan := range scansOf(at) {
		if v := scan.Value(); v != nil && isError(v.Type()) {
			if used(v) {
				all = append(all, outcome{v})
			} else {
				all = append(all, outcome{})
			}
		}
	}
	return all
}

func used(v ssa.Value) bool {
	for _, instr := range *v.Referrers() {
		if _, debug := instr.(*ssa.DebugRef); !debug {
			return true
		}
	}
	return false
}

// scansOf returns the calls of Scan on a row.
func scansOf(row ssa.Value) (all []*ssa.Call) {
	if row.Referrers() == nil {
		return nil
	}
	for _, instr := range *row.Referrers() {
		switch instr := instr.(type) {
		case *ssa.Call:
			if c := newCall(instr); c.recv == row && (c.name == "Scan" || c.name == "StructScan") {
				all = append(all, instr)
			}
		case *ssa.Extract:
			if !isError(instr.Type()) {
				all = append(all, scansOf(instr)...)
			}
		case *ssa.MakeInterface:
			all = append(all, scansOf(instr)...)
		}
	}
	return all
}

var (
	logPlace = regexp.MustCompile(`(?i)(^|[/._])(\w*log\w*|slog|zap|zerolog|logr|logrus|trac\w*|span|sentry|metric\w*|otel\w*|telemetry|klog)([/._]|$)|logger|span`)
	noRows   = regexp.MustCompile(`(?i)norows|notfound|nosuch`)
	asUnique = regexp.MustCompile(`(?i)unique|duplicate|alreadyexists`)
)

// logs reports whether a call only writes to a log, a trace or a metric.
func (c *call) logs() bool {
	if strings.HasPrefix(c.name, "Fatal") || strings.HasPrefix(c.name, "Panic") {
		return false
	}
	if c.pkg == "fmt" {
		return strings.HasPrefix(c.name, "Print") || strings.HasPrefix(c.name, "Fprint") || strings.HasPrefix(c.name, "Sprint")
	}
	if c.recv != nil && (c.name == "Error" || c.name == "String") && c.sig.Params().Len() == 0 {
		return true
	}
	if c.recv != nil && logPlace.MatchString(typeName(c.recv.Type())) {
		return true
	}
	return logPlace.MatchString(c.pkg)
}

// onlyLogged reports whether an error goes to nil comparisons and logs, and nowhere else.
func onlyLogged(err ssa.Value) bool {
	seen := map[ssa.Value]bool{}
	var follow func(v ssa.Value) bool
	follow = func(v ssa.Value) bool {
		if seen[v] || v.Referrers() == nil {
			return true
		}
		seen[v] = true
		for _, instr := range *v.Referrers() {
			switch instr := instr.(type) {
			case *ssa.DebugRef:
			case *ssa.BinOp, *ssa.If:
			case *ssa.Store:
				base := instr.Addr
				if at, is := base.(*ssa.IndexAddr); is {
					base = at.X
				}
				a, is := base.(*ssa.Alloc)
				if !is || base == ssa.Value(v) || !follow(a) {
					return false
				}
			case *ssa.IndexAddr, *ssa.MakeInterface, *ssa.ChangeInterface, *ssa.ChangeType, *ssa.Slice, *ssa.Phi, *ssa.UnOp, *ssa.Extract, *ssa.TypeAssert:
				if !follow(instr.(ssa.Value)) {
					return false
				}
			case *ssa.MapUpdate:
				if !follow(instr.Map) {
					return false
				}
			case *ssa.Call:
				c := newCall(instr)
				if isNoRows(c) {
					continue
				}
				if !c.logs() || !follow(instr) {
					return false
				}
			default:
				return false
			}
		}
		return true
	}
	return follow(err)
}

// isNoRows recognises errors.Is(err, pgx.ErrNoRows): a missing row is no failed statement.
func isNoRows(c *call) bool {
	return c.pkg == "errors" && c.name == "Is" && len(c.args) == 2 && noRowsValue(c.args[1])
}

func noRowsValue(v ssa.Value) bool {
	load, is := v.(*ssa.UnOp)
	if !is {
		return false
	}
	g, is := load.X.(*ssa.Global)
	return is && noRows.MatchString(g.Name())
}

// failed returns the block that runs if an error is not nil, and the block where that is decided.
func failed(err ssa.Value) (all []*ssa.BasicBlock) {
	for _, instr := range *err.Referrers() {
		b, is := instr.(*ssa.BinOp)
		if !is || b.Referrers() == nil {
			continue
		}
		other := b.Y
		if other == err {
			other = b.X
		}
		if c, is := other.(*ssa.Const); !is || !c.IsNil() {
			continue
		}
		for _, user := range *b.Referrers() {
			branch, is := user.(*ssa.If)
			if !is {
				continue
			}
			switch b.Op {
			case token.NEQ:
				all = append(all, branch.Block().Succs[0])
			case token.EQL:
				all = append(all, branch.Block().Succs[1])
			}
		}
	}
	return all
}

// returnsNil reports whether the function returns a nil error after the error of e.
func returnsNil(err ssa.Value, e event) bool {
	branches := failed(err)
	if len(branches) == 0 {
		return false
	}
	for _, from := range branches {
		if handled(from) {
			return false
		}
		seen := map[*ssa.BasicBlock]bool{}
		var walk func(b, before *ssa.BasicBlock) bool
		walk = func(b, before *ssa.BasicBlock) bool {
			if seen[b] || b == e.at.Block() && b != from {
				return false
			}
			seen[b] = true
			switch last := b.Instrs[len(b.Instrs)-1].(type) {
			case *ssa.Return:
				return nilError(last.Results[len(last.Results)-1], b, before)
			case *ssa.If:
				if c, not := condition(last.Cond); c != nil {
					skip := 0
					if not {
						skip = 1
					}
					return walk(b.Succs[1-skip], b)
				}
			}
			for _, next := range b.Succs {
				if walk(next, b) {
					return true
				}
			}
			return false
		}
		if walk(from, err.(ssa.Instruction).Block()) {
			return true
		}
	}
	return false
}

// condition returns the comparison with ErrNoRows in a condition, and whether it is negated.
func condition(v ssa.Value) (c any, not bool) {
	switch v := v.(type) {
	case *ssa.UnOp:
		if v.Op == token.NOT {
			c, not = condition(v.X)
			return c, !not
		}
	case *ssa.Call:
		if c := newCall(v); isNoRows(c) {
			return c, false
		}
	case *ssa.BinOp:
		if noRowsValue(v.X) || noRowsValue(v.Y) {
			return v, v.Op == token.NEQ
		}
	}
	return nil, false
}

func nilError(v ssa.Value, b, before *ssa.BasicBlock) bool {
	switch v := v.(type) {
	case *ssa.Const:
		return v.IsNil()
	case *ssa.UnOp: // a named result
		var last *ssa.Store
		for _, instr := range b.Instrs {
			if s, is := instr.(*ssa.Store); is && s.Addr == v.X {
				last = s
			}
		}
		return last != nil && isNilConst(last.Val)
	case *ssa.Phi:
		for i, pred := range v.Block().Preds {
			if v.Block() == b && pred == before {
				return nilError(v.Edges[i], pred, nil)
			}
		}
	}
	return false
}

// acksAfter reports whether the message is acknowledged after an error.
func acksAfter(err ssa.Value, events []event) bool {
	for _, from := range failed(err) {
		if handledBut(from, events) {
			continue
		}
		after := reachable(from, err.(ssa.Instruction).Block())
		for _, e := range events {
			if e.what == isAck && e.surely && !e.deferred && after[e.at.Block()] {
				return true
			}
		}
	}
	return false
}

// handledBut is handled, where an acknowledgement is no handling.
func handledBut(from *ssa.BasicBlock, events []event) bool {
	for _, e := range events {
		if e.what == isAck && from.Dominates(e.at.Block()) {
			return false
		}
	}
	return handled(from)
}

var givesBack = regexp.MustCompile(`(?i)nack|reject|requeue|retry|term$|visibility|dead|dlq|park|rollback|abort|inprogress`)

// handled reports whether the branch of a failure gives the message back, or passes it on.
func handled(from *ssa.BasicBlock) bool {
	for _, b := range from.Parent().Blocks {
		if !from.Dominates(b) {
			continue
		}
		for _, instr := range b.Instrs {
			switch instr := instr.(type) {
			case *ssa.Panic:
				return true
			case *ssa.Call:
				c := newCall(instr)
				if c.logs() {
					continue
				}
				if givesBack.MatchString(c.name) && !(c.name == "Rollback" && c.recv != nil && handlesMessages(from.Parent())) {
					return true
				}
				if c.recv != nil && isMessage(c.recv.Type()) || slices.ContainsFunc(c.args, func(a ssa.Value) bool { return isMessage(a.Type()) }) {
					return true
				}
			}
		}
	}
	return false
}

// treatsAsDone reports whether the function returns nil on a unique violation.
func treatsAsDone(err ssa.Value) bool {
	asked := false
	for _, instr := range *err.Referrers() {
		if c, is := instr.(*ssa.Call); is {
			name := newCall(c).name
			asked = asked || name == "As" || name == "AsType" || asUnique.MatchString(name)
		}
	}
	if !asked {
		return false
	}
	fn := err.Parent()
	for _, b := range fn.Blocks {
		branch, is := b.Instrs[len(b.Instrs)-1].(*ssa.If)
		if !is {
			continue
		}
		var done *ssa.BasicBlock
		switch cond := branch.Cond.(type) {
		case *ssa.BinOp:
			if cond.Op == token.EQL && (uniqueCode(cond.X) || uniqueCode(cond.Y)) {
				done = b.Succs[0]
			}
		case *ssa.Call:
			if c := newCall(cond); asUnique.MatchString(c.name) && slices.Contains(c.args, err) {
				done = b.Succs[0]
			}
		}
		if done == nil || len(done.Preds) != 1 {
			continue
		}
		for _, in := range fn.Blocks {
			last, is := in.Instrs[len(in.Instrs)-1].(*ssa.Return)
			if is && done.Dominates(in) && nilError(last.Results[len(last.Results)-1], in, nil) && !handled(done) {
				return true
			}
		}
	}
	return false
}

func uniqueCode(v ssa.Value) bool {
	c, is := v.(*ssa.Const)
	return is && c.Value != nil && c.Value.Kind() == constant.String && constant.StringVal(c.Value) == "23505"
}
