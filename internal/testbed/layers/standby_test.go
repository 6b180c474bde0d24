package layers

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// statements are the methods with which a pool runs a statement.
var statements = []string{"Acquire", "AcquireFunc", "AcquireAllIdle", "Begin", "BeginTx", "CopyFrom", "Exec", "Query", "QueryRow", "SendBatch"}

// toPools are the types through which a pool is used.
var toPools = []string{"*github.com/jackc/pgx/v5/pgxpool.Pool", module + ".DB", module + "/internal/contract.DB", module + "/internal/contract.Batcher"}

// stays are the functions that use a pool and do not leave a standby, with the reason.
var stays = map[string]string{
	"dashboard.read":                "it only reads",
	"doctor":                        "it only reads",
	"guard.why":                     "it only reads",
	"internal/conns.Acquire":        "makes the Conn by which it is known",
	"internal/contract.CommandLook": "it only reads, and says nothing on a standby",
	"internal/contract.listened":    "its callers do",
	"internal/delivery.Estimate":    "it only reads",
	"internal/delivery.ReadEpoch":   "it only reads, and the epoch of a standby proves nothing",
	"internal/txn.acquire":          "its caller does",
	"internal/txn.acceptsWrites":    "it only reads, and asks whether the server takes writes",
	"internal/txn.Watched":          "it only looks at the connection",
	"job.measure":                   "it only reads",
	"migrate":                       "a program that migrates, or starts, ends with its error",
	"observe/internal/metrics.ask":  "it only reads",
	"service.fits":                  "it only looks at connections, and reads",
}

// If a server that has become a standby refuses one of our statements, the pool must leave that
// server. Otherwise the component would fail until its connections end.
func TestStatements_LeaveAStandby(t *testing.T) {
	t.Parallel()
	met := map[string]bool{}
	for _, p := range typedPackages(t) {
		for _, f := range p.files {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil {
					continue
				}
				asks, leaves := ast.Node(nil), false
				eachCall(fn, func(call *ast.CallExpr) {
					if strings.EqualFold(called(call), "leaveStandby") {
						leaves = true
					}
					s, method := call.Fun.(*ast.SelectorExpr)
					switch {
					case !method:
					case slices.Contains(statements, s.Sel.Name) && p.info.Types[s.X].Type != nil && slices.Contains(toPools, p.info.Types[s.X].Type.String()):
						asks = call
					case s.Sel.Name == "BeginTxFunc" || s.Sel.Name == "BeginFunc":
						asks = call
					}
				})
				name := p.name + "." + fn.Name.Name
				excused := ""
				for _, known := range []string{name, p.name} {
					if stays[known] != "" {
						excused = known
					}
				}
				switch {
				case asks == nil:
				case excused != "" && !leaves:
					met[excused] = true
				case !leaves:
					t.Errorf("%s: %s asks a pool, and does not have it leave a standby", p.fset.Position(asks.Pos()), name)
				}
			}
		}
	}
	for name := range stays {
		if !met[name] {
			t.Errorf("%s asks no pool any more: take it from the list", name)
		}
	}
}
