package vet

import "golang.org/x/tools/go/ssa"

// reaches reports whether to can run after from without any of the stops in between.
func reaches(from, to ssa.Instruction, stops map[ssa.Instruction]bool) bool {
	if from.Parent() != to.Parent() {
		return false
	}
	seen := map[*ssa.BasicBlock]bool{}
	var walk func(instrs []ssa.Instruction, b *ssa.BasicBlock) bool
	walk = func(instrs []ssa.Instruction, b *ssa.BasicBlock) bool {
		for _, instr := range instrs {
			if instr == to {
				return true
			}
			if stops[instr] {
				return false
			}
		}
		for _, next := range b.Succs {
			if !seen[next] {
				seen[next] = true
				if walk(next.Instrs, next) {
					return true
				}
			}
		}
		return false
	}
	b := from.Block()
	for i, instr := range b.Instrs {
		if instr == from {
			return walk(b.Instrs[i+1:], b)
		}
	}
	return false
}

// reachable returns the blocks that can run from a block on, itself included, without stop.
func reachable(b, stop *ssa.BasicBlock) map[*ssa.BasicBlock]bool {
	seen := map[*ssa.BasicBlock]bool{}
	var walk func(b *ssa.BasicBlock)
	walk = func(b *ssa.BasicBlock) {
		if b == stop || seen[b] {
			return
		}
		seen[b] = true
		for _, next := range b.Succs {
			walk(next)
		}
	}
	walk(b)
	return seen
}

// sources returns the instructions from which a value is made: those that run again when a loop
// takes the next message.
func sources(values ...ssa.Value) map[ssa.Instruction]bool {
	all := map[ssa.Instruction]bool{}
	var walk func(v ssa.Value)
	walk = func(v ssa.Value) {
		instr, is := v.(ssa.Instruction)
		if !is || all[instr] || len(all) > 500 {
			return
		}
		all[instr] = true
		for _, operand := range instr.Operands(nil) {
			if *operand != nil {
				walk(*operand)
			}
		}
		var addr ssa.Value
		switch v := v.(type) {
		case *ssa.Alloc:
			addr = v
		case *ssa.MakeSlice:
			addr = v
		default:
			return
		}
		for _, at := range inside(addr) {
			for _, store := range storesTo(at) {
				if store.Parent() == instr.Parent() {
					all[store] = true
				}
				walk(store.Val)
			}
		}
	}
	for _, v := range values {
		if v != nil {
			walk(v)
		}
	}
	return all
}

// inside returns an address and those of the fields and elements below it.
func inside(addr ssa.Value) []ssa.Value {
	all := []ssa.Value{addr}
	if addr.Referrers() == nil {
		return all
	}
	for _, instr := range *addr.Referrers() {
		switch instr := instr.(type) {
		case *ssa.FieldAddr:
			all = append(all, inside(instr)...)
		case *ssa.IndexAddr:
			if instr.X == addr {
				all = append(all, inside(instr)...)
			}
		}
	}
	return all
}
