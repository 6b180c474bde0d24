package layers

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// onlyRead are outcomes that a function gives from what it has read. Whoever hears one may acknowledge, or answer.
var onlyRead = regexp.MustCompile(`'(duplicate_ignored|duplicate|replay_success|final_failure|not_held|absent|ended)'`)

// notAnswers are the functions that name such an outcome and need not prove it, and why.
var notAnswers = map[string]string{
	"_raise_fence_lost": "raises: nobody is answered", "_command_refuse": "raises", "_command_raise": "raises",
	"_refusal": "a verb of operators, who look again", "inbox_forget": "the same", "inbox_replay": "the same", "job_recall": "the same",
	"lane_unblock": "the same", "lane_policy": "the same", "command_settle": "the same", "effect_settle": "the same",
	"schedule_pause": "the same", "schedule_resume": "the same", "schedule_run_now": "the same", "schedule_delete": "the same",
	"lane_promote": "a hint to a worker", "schedule_tick": "a keeper asks again at the next tick",
	"effect_again": "a verb of operators, who look again", "job_open": "'ended' by its own DELETE", "job_close": "the same: it compares what it is told",
	"effect_end": "whoever is told that the step is gone, or had ended, plans again",
}

// Every SQL function that answers from what it only read makes its COMMIT wait for the synchronous standbys (pawl_v1._unproved).
func TestAnswers_ThatAreOnlyReadAreUnproved(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../sql/api/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	function := regexp.MustCompile(`(?s)^pawl_v1\.(\w+)\(.*?\nas \$\$(.*?)\n\$\$;`)
	proved, excused := 0, map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, rest := range bytes.Split(text, []byte("create or replace function "))[1:] {
			m := function.FindSubmatch(rest)
			if m == nil {
				continue // an expression, parsed when it is created
			}
			name, body := string(m[1]), m[2]
			proves := regexp.MustCompile(`pawl_v1\._unproved\(\)`).Match(body)
			_, free := notAnswers[name]
			switch {
			case proves:
				proved++
			case !onlyRead.Match(body):
			case free:
				excused[name] = true
			default:
				t.Errorf("%s: %s answers from what it only read, and does not call _unproved", filepath.Base(file), name)
			}
		}
	}
	if proved < 9 {
		t.Errorf("%d functions prove their answers: the test does not see them", proved)
	}
	for name := range notAnswers {
		if !excused[name] {
			t.Errorf("%s is excused and needs no excuse", name)
		}
	}
}

// makers are the functions of package flow that make a receipt without proof, and what makes it durable.
var makers = map[string]string{
	"answered":  "itself",
	"duplicate": "Unproved was asked",
	"once":      "its own COMMIT",
	"onceBatch": "its own COMMIT",
	"landIn":    "its own COMMIT",
	"notPassed": "its own COMMIT, of its inbox row",
	"trigger":   "the trigger; packages guard and job prove what they read",
	"prove":     "txn.Replicated",
}

// Only these functions make receipts: a new one has to say what makes the outcome durable, and replicated.
func TestReceipts_AreMadeWhereSomethingWasCommittedOrProved(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../flow/*.go")
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
				call, is := n.(*ast.CallExpr)
				if !is || !makesReceipt(call.Fun) {
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

func makesReceipt(called ast.Expr) bool {
	switch f := called.(type) {
	case *ast.Ident:
		return f.Name == "answered"
	case *ast.SelectorExpr:
		pkg, is := f.X.(*ast.Ident)
		return is && pkg.Name == "receipt" && (f.Sel.Name == "Committed" || f.Sel.Name == "Proved")
	}
	return false
}
