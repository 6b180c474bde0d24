package vet

import (
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/buildssa"
	"golang.org/x/tools/go/ssa"
)

// A program is one package: its functions and their events.
type program struct {
	pass   *analysis.Pass
	pkg    *ssa.Package
	funcs  []*ssa.Function // without those of tests
	direct map[*ssa.Function][]event
	whole  map[*ssa.Function][]event
}

func newProgram(pass *analysis.Pass, built *buildssa.SSA) *program {
	p := &program{pass: pass, pkg: built.Pkg, direct: map[*ssa.Function][]event{}, whole: map[*ssa.Function][]event{}}
	tests := map[string]bool{}
	for _, file := range pass.Files {
		if isTest(pass.Fset, file) {
			tests[pass.Fset.Position(file.Package).Filename] = true
		}
	}
	for _, fn := range built.SrcFuncs {
		if !tests[pass.Fset.Position(fn.Pos()).Filename] && len(fn.Blocks) > 0 {
			p.funcs = append(p.funcs, fn)
		}
	}
	// The analyzers run at the same time, so that all is computed before.
	for _, fn := range built.SrcFuncs {
		p.direct[fn] = p.directOf(fn)
	}
	for _, fn := range built.SrcFuncs {
		p.whole[fn] = p.eventsOf(fn)
	}
	return p
}

// A call is one call, with the receiver apart from the arguments.
type call struct {
	instr ssa.CallInstruction
	obj   *types.Func // nil for function values
	sig   *types.Signature
	name  string
	pkg   string
	recv  ssa.Value
	args  []ssa.Value
}

func newCall(instr ssa.CallInstruction) *call {
	common := instr.Common()
	c := &call{instr: instr, sig: common.Signature(), args: common.Args}
	switch {
	case common.IsInvoke():
		c.obj, c.recv = common.Method, common.Value
	case common.StaticCallee() != nil:
		callee := common.StaticCallee()
		c.obj, _ = callee.Object().(*types.Func)
		c.name = callee.Name()
		if callee.Signature.Recv() != nil && len(common.Args) > 0 {
			c.recv, c.args = common.Args[0], common.Args[1:]
		}
	default:
		c.name = nameOf(common.Value)
	}
	if c.obj != nil {
		c.name = c.obj.Name()
		if c.obj.Pkg() != nil {
			c.pkg = unvendored(c.obj.Pkg().Path())
		}
	}
	return c
}

// nameOf returns the name of the parameter, variable or field that holds a function.
func nameOf(v ssa.Value) string {
	switch v := v.(type) {
	case *ssa.Parameter, *ssa.FreeVar, *ssa.Global:
		return v.Name()
	case *ssa.UnOp:
		return nameOf(v.X)
	case *ssa.FieldAddr:
		return fieldName(v)
	}
	return ""
}

// fieldName returns the name of the field whose address is taken.
func fieldName(v *ssa.FieldAddr) string {
	s, is := types.Unalias(v.X.Type()).Underlying().(*types.Pointer).Elem().Underlying().(*types.Struct)
	if !is {
		return ""
	}
	return s.Field(v.Field).Name()
}

// display returns the call's name as a reader of the code knows it.
func (c *call) display() string {
	if c.recv != nil {
		if n := typeName(c.recv.Type()); n != "" {
			return n[strings.LastIndex(n, "/")+1:] + "." + c.name
		}
		return c.name
	}
	return c.pkg[strings.LastIndex(c.pkg, "/")+1:] + "." + c.name
}

type what int

const (
	isStmt     what = iota + 1 // executes SQL
	isBegin                    // begins a transaction
	isCommit                   // commits one
	isRollback                 // rolls one back
	isBlock                    // runs a function in a transaction
	isAck
	isReceive
	isOutside // calls another system
	isLend    // passes a transaction to a function that is not looked into
	isUse     // uses a pool in another way
)

// An event is a call that matters.
type event struct {
	*call
	what
	at       ssa.CallInstruction // the call in the function that is looked at
	via      bool                // at calls a function of the package that contains the call
	inline   bool                // that function is a literal in the function that is looked at
	sure     bool                // the call is made whenever at is
	deferred bool
	surely   bool // of isAck: by a known broker
	handle   any  // what it runs on, by rootOf
	kind     kind
	tx       ssa.Value // the handle's value
	sql      *statement
	text     string
	message  []ssa.Value // of isAck: what is acknowledged
}

func (e *event) pos() token.Pos {
	if d, is := e.at.(*ssa.Defer); is {
		return d.Pos()
	}
	return e.at.Pos()
}

// eventsOf returns the events of a function, with those of the functions of the package that it
// calls, two calls deep.
func (p *program) eventsOf(fn *ssa.Function) []event {
	if all, known := p.whole[fn]; known {
		return all
	}
	return p.expand(fn, 2)
}

func (p *program) expand(fn *ssa.Function, depth int) (all []event) {
	all = append(all, p.directOf(fn)...)
	if depth == 0 {
		return all
	}
	for _, block := range fn.Blocks {
		for _, instr := range block.Instrs {
			at, is := instr.(ssa.CallInstruction)
			if !is {
				continue
			}
			if _, async := at.(*ssa.Go); async {
				continue
			}
			callee := at.Common().StaticCallee()
			if callee == nil || callee == fn || callee.Pkg != p.pkg || len(callee.Blocks) == 0 || callee.Origin() != nil {
				continue
			}
			if slices.ContainsFunc(all, func(e event) bool { return e.at == at && !e.via && e.what != isLend }) {
				continue
			}
			_, deferred := at.(*ssa.Defer)
			for _, inner := range p.expand(callee, depth-1) {
				if inner.what == isReceive || inner.what == isUse && inner.kind != poolKind {
					continue
				}
				e := inner
				e.sure = inner.sure && always(inner.at.Block(), callee)
				e.inline = callee.Parent() == fn
				e.at, e.via, e.deferred = at, true, deferred || inner.deferred && callee.Parent() != nil && deferred
				e.handle = translate(inner.handle, callee, at.Common())
				if inner.what == isAck {
					e.message = nil
					for _, arg := range at.Common().Args {
						if kindOf(arg.Type()) == noHandle && !isContext(arg.Type()) {
							e.message = append(e.message, arg)
						}
					}
				}
				all = append(all, e)
			}
		}
	}
	return all
}

// always reports whether a block runs whenever its function does, unless a panic is recovered.
func always(block *ssa.BasicBlock, fn *ssa.Function) bool {
	for at, n := fn.Blocks[0], 0; n < len(fn.Blocks); n++ {
		if at == block {
			return true
		}
		switch last := at.Instrs[len(at.Instrs)-1].(type) {
		case *ssa.Jump:
			at = at.Succs[0]
		case *ssa.If:
			cond, is := last.Cond.(*ssa.BinOp)
			if !is || !recovered(cond.X) && !recovered(cond.Y) {
				return false
			}
			if cond.Op == token.NEQ {
				at = at.Succs[1]
			} else {
				at = at.Succs[0]
			}
		default:
			return false
		}
	}
	return false
}

func recovered(v ssa.Value) bool {
	c, is := v.(*ssa.Call)
	if !is {
		return false
	}
	b, is := c.Call.Value.(*ssa.Builtin)
	return is && b.Name() == "recover"
}

func isContext(t types.Type) bool { return typeName(t) == "context.Context" }

// translate maps a handle of a callee to one of the caller.
func translate(handle any, callee *ssa.Function, common *ssa.CallCommon) any {
	switch h := handle.(type) {
	case *ssa.Parameter:
		for i, param := range callee.Params {
			if param == h && i < len(common.Args) {
				return rootOf(common.Args[i])
			}
		}
	case field:
		return field{translate(h.of, callee, common), h.at}
	}
	return handle
}

func (p *program) directOf(fn *ssa.Function) []event {
	if all, known := p.direct[fn]; known {
		return all
	}
	var all []event
	for _, block := range fn.Blocks {
		for _, instr := range block.Instrs {
			at, is := instr.(ssa.CallInstruction)
			if !is {
				continue
			}
			if _, async := at.(*ssa.Go); async {
				continue
			}
			if e := classify(newCall(at)); e != nil {
				e.at, e.sure = at, true
				_, e.deferred = at.(*ssa.Defer)
				all = append(all, *e)
			}
		}
	}
	return all
}

// classify returns what a call does, or nil if that is nothing of interest.
func classify(c *call) *event {
	if acks, surely := c.acks(); acks {
		return acknowledgement(c, surely)
	}
	e := &event{call: c}
	e.findHandle()
	switch {
	case c.recv != nil && commits(c.recv.Type()) && (c.name == "Commit" || c.name == "Rollback"):
		e.what, e.handle = isCommit, rootOf(c.recv)
		if c.name == "Rollback" {
			e.what = isRollback
		}
	case c.runsInTx():
		e.what = isBlock
	case strings.HasPrefix(c.name, "Begin") && c.sig.Results().Len() > 0 && commits(c.sig.Results().At(0).Type()):
		e.what = isBegin
		if c.recv != nil {
			e.tx, e.kind, e.handle = c.recv, kindOf(c.recv.Type()), rootOf(c.recv)
		}
	case e.findStatement():
		e.what = isStmt
	case e.findOutside():
		e.what = isOutside
	case c.receives():
		e.what = isReceive
	case c.recv != nil && e.tx == c.recv && e.kind == poolKind && executes(c.name):
		e.what = isUse
	case e.kind != txKind:
		return nil
	case e.tx == c.recv && executes(c.name):
		e.what = isUse
	case e.tx == c.recv:
		return nil
	case strings.Contains(strings.ToLower(c.name), "rollback"):
		e.what = isRollback
	default:
		e.what = isLend
	}
	return e
}

// acknowledgement returns the event of a call that acknowledges messages: its arguments, or its
// receiver.
func acknowledgement(c *call, surely bool) *event {
	e := &event{call: c, what: isAck, surely: surely}
	for _, arg := range c.args {
		if !isContext(arg.Type()) {
			e.message = append(e.message, arg)
		}
	}
	if _, constant := allConst(e.message); len(e.message) == 0 || constant {
		e.message = []ssa.Value{c.recv}
	}
	return e
}

// findHandle finds the transaction or pool on which the call works: its receiver, or an argument.
func (e *event) findHandle() {
	on := e.call.recv
	if on == nil || kindOf(on.Type()) == noHandle {
		for _, arg := range e.call.args {
			if kindOf(arg.Type()) != noHandle {
				on = arg
				break
			}
		}
	}
	if on == nil {
		return
	}
	e.tx, e.kind, e.handle = on, kindOf(on.Type()), rootOf(on)
	if lentGORM(e.handle) {
		e.kind = txKind
	}
}

// findStatement finds the SQL that the call sends, and reports whether there is any.
func (e *event) findStatement() bool {
	if e.kind == noHandle || e.call.pkg == "fmt" {
		return false
	}
	for _, arg := range e.call.args {
		if b, is := arg.Type().Underlying().(*types.Basic); is && b.Info()&types.IsString != 0 {
			if e.sql = parseSQL(textOf(arg)); e.sql != nil {
				return true
			}
		}
	}
	return false
}

// findOutside finds the system that the call reaches, and reports whether it leaves the process.
func (e *event) findOutside() bool {
	e.text = e.call.outside()
	return e.text != ""
}

// executes reports whether a method of a handle sends a statement.
func executes(name string) bool {
	switch name {
	case "Exec", "ExecContext", "Query", "QueryContext", "QueryRow", "QueryRowContext", "Acquire", "Conn", "SendBatch", "CopyFrom", "Get", "GetContext", "Select", "SelectContext", "NamedExec", "NamedExecContext":
		return true
	}
	return false
}

// runsInTx reports whether the call takes a function that gets a transaction, and returns its
// error: pgx.BeginFunc, gorm's Transaction and most helpers called WithTx.
func (c *call) runsInTx() bool {
	results := c.sig.Results()
	if results.Len() == 0 || !isError(results.At(results.Len()-1).Type()) {
		return false
	}
	for p := range c.sig.Params().Variables() {
		f, is := p.Type().Underlying().(*types.Signature)
		if !is || f.Results().Len() == 0 || !isError(f.Results().At(f.Results().Len()-1).Type()) {
			continue
		}
		for lent := range f.Params().Variables() {
			if isTx(lent.Type()) || typeName(lent.Type()) == "gorm.io/gorm.DB" && c.name == "Transaction" {
				return true
			}
		}
	}
	return false
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

func allConst(values []ssa.Value) (n int, all bool) {
	for _, v := range values {
		if _, is := v.(*ssa.Const); is {
			n++
		}
	}
	return n, n == len(values)
}

// lentGORM reports whether a handle is a *gorm.DB parameter that is named as a transaction.
func lentGORM(handle any) bool {
	p, is := handle.(*ssa.Parameter)
	return is && p.Name() == "tx" && typeName(p.Type()) == "gorm.io/gorm.DB"
}

// lent returns the transaction that a function gets from its caller, or nil.
func lent(fn *ssa.Function) *ssa.Parameter {
	for i, p := range fn.Params {
		if i == 0 && fn.Signature.Recv() != nil {
			continue // a method of a transaction
		}
		if isTx(p.Type()) || lentGORM(p) || namedTx(p.Type()) {
			return p
		}
	}
	return nil
}

// namedTx recognises transactions without SQL methods, such as ent's.
func namedTx(t types.Type) bool {
	name := typeName(t)
	return strings.HasSuffix(name, ".Tx") && commits(t) && !types.IsInterface(t)
}

// maybeNil reports whether a function compares its transaction with nil: it may run without one.
func maybeNil(param *ssa.Parameter) bool {
	for _, instr := range *param.Referrers() {
		if b, is := instr.(*ssa.BinOp); is && (b.Op == token.EQL || b.Op == token.NEQ) {
			for _, side := range []ssa.Value{b.X, b.Y} {
				if c, is := side.(*ssa.Const); is && c.IsNil() {
					return true
				}
			}
		}
	}
	return false
}

// within returns a function and the closures in it that run before it returns.
func within(fn *ssa.Function) (all []*ssa.Function) {
	all = append(all, fn)
	for _, anon := range fn.AnonFuncs {
		if !later(anon) {
			all = append(all, within(anon)...)
		}
	}
	return all
}

// later reports whether a closure may run after its function has returned.
func later(anon *ssa.Function) bool {
	var uses []ssa.Instruction
	if len(anon.FreeVars) == 0 {
		for _, block := range anon.Parent().Blocks {
			for _, instr := range block.Instrs {
				for _, operand := range instr.Operands(nil) {
					if *operand == ssa.Value(anon) {
						uses = append(uses, instr)
					}
				}
			}
		}
	}
	for _, block := range anon.Parent().Blocks {
		for _, instr := range block.Instrs {
			if c, is := instr.(*ssa.MakeClosure); is && c.Fn == ssa.Value(anon) && c.Referrers() != nil {
				uses = append(uses, *c.Referrers()...)
			}
		}
	}
	for _, use := range uses {
		switch use := use.(type) {
		case *ssa.Go, *ssa.Return, *ssa.Store, *ssa.Send, *ssa.MapUpdate:
			return true
		case ssa.CallInstruction:
			name := strings.ToLower(newCall(use).name)
			for _, word := range []string{"after", "oncommit", "hook", "defer", "async", "spawn", "schedule", "register"} {
				if strings.Contains(name, word) {
					return true
				}
			}
			if name == "go" || name == "trygo" {
				return true
			}
		}
	}
	return false
}
