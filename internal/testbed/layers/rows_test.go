package layers

import (
	"go/ast"
	"testing"
)

// Pawl calls QueryContext, and not QueryRowContext. A user's handle may wrap database/sql's, and
// its QueryRowContext cannot return an error of its own: the fields of a sql.Row are private.
func TestHandles_AreAskedThroughQueryContext(t *testing.T) {
	t.Parallel()
	asked := 0
	for _, f := range parsedFiles(t) {
		if underOwnPath(f.name) != "" { // SQL of applications and of tests
			continue
		}
		eachCall(f.file, func(call *ast.CallExpr) {
			switch called(call) {
			case "QueryContext":
				asked++
			case "QueryRowContext":
				t.Errorf("%s: call QueryContext, which returns the error", f.set.Position(call.Pos()))
			}
		})
	}
	if asked < 2 {
		t.Errorf("%d calls of QueryContext: the test does not see them", asked)
	}
}
