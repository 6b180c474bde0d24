package layers

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// onlyRead matches outcomes that a function returns from what it has read. The caller may
// acknowledge or respond on such an outcome.
var onlyRead = regexp.MustCompile(`'(duplicate_ignored|duplicate|replay_success|final_failure|not_held|absent|ended)'`)

// notAnswers are the functions that name such an outcome and need no replication, with the reason.
var notAnswers = map[string]string{
	"_raise_fence_lost": "raises: nobody is answered", "_command_refuse": "raises", "_command_raise": "raises",
	"_refusal": "a verb of operators, who look again", "inbox_forget": "the same", "inbox_replay": "the same", "job_recall": "the same",
	"lane_unblock": "the same", "lane_policy": "the same", "command_settle": "the same", "step_settle": "the same",
	"schedule_pause": "the same", "schedule_resume": "the same", "schedule_run_now": "the same", "schedule_delete": "the same",
	"lane_promote": "a hint to a worker", "schedule_tick": "a keeper asks again at the next tick",
	"step_again": "a verb of operators, who look again", "job_open": "'ended' by its own DELETE", "job_close": "the same: it compares what it is told", "job_exchange": "the same as job_open",
	"inbox_unreserve": "part of a transaction that ends a delivery: its COMMIT waits",
	"step_end":        "whoever is told that the step is gone, or had ended, plans again",
}

// Every SQL function that answers from what it only read makes its COMMIT wait for the synchronous
// standbys (pawl_v1._unreplicated).
func TestAnswers_ThatAreOnlyReadAreUnreplicated(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../schema/api/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	function := regexp.MustCompile(`(?s)^pawl_v1\.(\w+)\(.*?\nas \$\$(.*?)\n\$\$;`)
	replicated, excused := 0, map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, rest := range bytes.Split(text, []byte("create or replace function "))[1:] {
			m := function.FindSubmatch(rest)
			if m == nil {
				continue // an expression, parsed at its creation
			}
			name, body := string(m[1]), m[2]
			waits := regexp.MustCompile(`pawl_v1\._unreplicated\(\)`).Match(body)
			_, free := notAnswers[name]
			switch {
			case waits:
				replicated++
			case !onlyRead.Match(body):
			case free:
				excused[name] = true
			default:
				t.Errorf("%s: %s answers from what it only read, and does not call _unreplicated", filepath.Base(file), name)
			}
		}
	}
	if replicated < 9 {
		t.Errorf("%d functions wait for replication: the test does not see them", replicated)
	}
	for name := range notAnswers {
		if !excused[name] {
			t.Errorf("%s is excused and needs no excuse", name)
		}
	}
}

// makers are the functions of package consumer that create a receipt, or an outcome that leads to
// one, with the reason why it is durable.
var makers = map[string]string{
	"receiptOf":          "itself",
	"acknowledge":        "the outcome is decided, and not only read",
	"confirmReplicated":  "txn.Replicated",
	"commit":             "its own COMMIT; what was only read says so",
	"commitMany":         "its own COMMIT; what was only read says so",
	"filter":             "the epoch shows that the row is there; that it was only read says so",
	"refusedDisposition": "the COMMIT of its inbox row, which waits",
	"deliverTrigger":     "the trigger; packages guard and job wait until what they read is replicated",
}

// Only these functions create receipts. A new one must state why its outcome is durable and
// replicated.
func TestReceipts_AreMadeWhereSomethingWasCommittedOrReplicated(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../consumer/*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		if regexp.MustCompile(`_test\.go$`).MatchString(file) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range parsed.Decls {
			fn, is := declared.(*ast.FuncDecl)
			if !is {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if !makesReceipt(n) {
					return true
				}
				if makers[fn.Name.Name] == "" {
					t.Errorf("%s: %s makes a receipt", filepath.Base(file), fn.Name.Name)
				}
				seen[fn.Name.Name] = true
				return true
			})
		}
	}
	for name := range makers {
		if !seen[name] {
			t.Errorf("%s makes no receipt any more", name)
		}
	}
}

// makesReceipt recognises receiptOf(…), receipt.Committed[…](…), deliveryResult{decided: …} and an
// assignment to readOn.
func makesReceipt(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		called := n.Fun
		if generic, is := called.(*ast.IndexExpr); is {
			called = generic.X
		}
		if f, is := called.(*ast.SelectorExpr); is {
			pkg, is := f.X.(*ast.Ident)
			return is && pkg.Name == "receipt"
		}
		f, is := called.(*ast.Ident)
		return is && f.Name == "receiptOf"
	case *ast.CompositeLit:
		of, is := n.Type.(*ast.Ident)
		return is && of.Name == "deliveryResult" && slices.ContainsFunc(n.Elts, func(e ast.Expr) bool {
			field, is := e.(*ast.KeyValueExpr)
			return is && field.Key.(*ast.Ident).Name == "decided"
		})
	case *ast.AssignStmt:
		return slices.ContainsFunc(n.Lhs, func(e ast.Expr) bool {
			to, is := e.(*ast.SelectorExpr)
			return is && (to.Sel.Name == "readOn" || to.Sel.Name == "decided")
		})
	}
	return false
}
