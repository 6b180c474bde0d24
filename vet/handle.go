package vet

import (
	"go/types"
	"strings"

	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/types/typeutil"
)

// A kind says what a value can execute SQL on.
type kind int

const (
	noHandle   kind = iota
	eitherKind      // an interface, or a type of the user: a transaction or a pool
	poolKind        // a pool or a connection of its own
	txKind          // a transaction
)

var methodSets typeutil.MethodSetCache

// pools are the types of which a value is never a transaction that was lent.
var pools = map[string]bool{
	"database/sql.DB": true, "database/sql.Conn": true,
	"github.com/jackc/pgx/v5.Conn": true, "github.com/jackc/pgx/v5/pgxpool.Pool": true, "github.com/jackc/pgx/v5/pgxpool.Conn": true,
	"github.com/jackc/pgx/v4.Conn": true, "github.com/jackc/pgx/v4/pgxpool.Pool": true, "github.com/jackc/pgx/v4/pgxpool.Conn": true,
	"github.com/jmoiron/sqlx.DB": true, "github.com/jmoiron/sqlx.Conn": true, "github.com/uptrace/bun.DB": true,
}

// notSQL are packages whose transactions are not of a SQL database.
var notSQL = []string{"go.etcd.io/", "github.com/dgraph-io/", "go.mongodb.org/", "github.com/boltdb/"}

// typeName returns "package/path.Name" of a type or its pointee, or "".
func typeName(t types.Type) string {
	if p, is := types.Unalias(t).(*types.Pointer); is {
		t = p.Elem()
	}
	n, is := types.Unalias(t).(*types.Named)
	if !is || n.Obj().Pkg() == nil {
		return ""
	}
	return unvendored(n.Obj().Pkg().Path()) + "." + n.Obj().Name()
}

func unvendored(path string) string {
	if at := strings.LastIndex(path, "/vendor/"); at >= 0 {
		return path[at+len("/vendor/"):]
	}
	return path
}

func has(t types.Type, names ...string) bool {
	set := methodSets.MethodSet(t)
	for _, name := range names {
		if set.Lookup(nil, name) != nil {
			return true
		}
	}
	return false
}

// commits reports whether a type is a transaction, or a unit of work that contains one.
func commits(t types.Type) bool {
	name := typeName(t)
	for _, prefix := range notSQL {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return has(t, "Commit") && has(t, "Rollback")
}

func kindOf(t types.Type) kind {
	switch types.Unalias(t).Underlying().(type) {
	case *types.Pointer, *types.Interface, *types.Struct:
	default:
		return noHandle
	}
	if pools[typeName(t)] {
		return poolKind
	}
	if !has(t, "Exec", "ExecContext", "Query", "QueryContext", "QueryRow", "QueryRowContext", "Raw") {
		return noHandle
	}
	if types.IsInterface(t) && has(t, "BeginTx", "BeginTxx") && !has(t, "Commit") && !strings.Contains(typeName(t), "/bun.") {
		return poolKind // no transaction of database/sql or pgx has BeginTx
	}
	if commits(t) && !strings.HasPrefix(typeName(t), "gorm.io/") {
		return txKind
	}
	return eitherKind
}

// isTx reports whether a type is a transaction on which SQL runs.
func isTx(t types.Type) bool { return kindOf(t) == txKind }

// rootOf follows a value to the parameter, call, field or variable from which it comes. Two handles
// are the same transaction if they have the same root.
func rootOf(v ssa.Value) any {
	if root := (roots{}).of(v); root != nil {
		return root
	}
	return v
}

// roots holds the root of each value that was reached. It is nil while the value is being followed:
// then a loop has led back to it.
type roots map[ssa.Value]any

func (r roots) of(v ssa.Value) any {
	root, known := r[v]
	if !known {
		r[v] = nil
		root = r.follow(v)
		r[v] = root
	}
	return root
}

func (r roots) follow(v ssa.Value) any {
	switch v := v.(type) {
	case *ssa.Extract:
		return r.of(v.Tuple)
	case *ssa.ChangeInterface:
		return r.of(v.X)
	case *ssa.MakeInterface:
		return r.of(v.X)
	case *ssa.ChangeType:
		return r.of(v.X)
	case *ssa.TypeAssert:
		return r.of(v.X)
	case *ssa.Phi:
		var one any
		for _, edge := range v.Edges {
			if c, is := edge.(*ssa.Const); is && c.IsNil() {
				continue
			}
			root := r.of(edge)
			if root == nil {
				continue
			}
			if one != nil && one != root {
				return v
			}
			one = root
		}
		return one
	case *ssa.FreeVar:
		if bound := binding(v); bound != nil {
			return r.of(bound)
		}
	case *ssa.Field:
		return r.of(v.X)
	case *ssa.FieldAddr:
		if of := r.of(v.X); of != nil {
			return field{of, v.Field}
		}
	case *ssa.UnOp:
		return r.of(v.X)
	case *ssa.Alloc:
		if s := onlyStore(v); s != nil {
			return r.of(s.Val)
		}
	}
	return v
}

// A field of a value. Two loads of it are the same handle.
type field struct {
	of any
	at int
}

// binding returns what a closure captured as a free variable.
func binding(v *ssa.FreeVar) ssa.Value {
	fn := v.Parent()
	if fn == nil || fn.Parent() == nil {
		return nil
	}
	at := -1
	for i, free := range fn.FreeVars {
		if free == v {
			at = i
		}
	}
	for _, block := range fn.Parent().Blocks {
		for _, instr := range block.Instrs {
			if c, is := instr.(*ssa.MakeClosure); is && c.Fn == fn && at >= 0 {
				return c.Bindings[at]
			}
		}
	}
	return nil
}

// onlyStore returns the only assignment to a local variable, or nil. Assignments in closures count.
func onlyStore(v *ssa.Alloc) (only *ssa.Store) {
	for _, store := range storesTo(v) {
		if only != nil {
			return nil
		}
		only = store
	}
	return only
}

// storesTo returns the assignments to a local variable as a whole, also in closures.
func storesTo(addr ssa.Value) (all []*ssa.Store) {
	if addr.Referrers() == nil {
		return nil
	}
	for _, instr := range *addr.Referrers() {
		switch instr := instr.(type) {
		case *ssa.Store:
			if instr.Addr == addr {
				all = append(all, instr)
			}
		case *ssa.MakeClosure:
			for i, b := range instr.Bindings {
				if b == addr {
					all = append(all, storesTo(instr.Fn.(*ssa.Function).FreeVars[i])...)
				}
			}
		}
	}
	return all
}
