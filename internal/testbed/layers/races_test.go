package layers

import (
	"go/ast"
	"go/token"
	"testing"
)

// Only the table of verdicts contains the codes of a lost race. Other code calls txn.LostRace.
func TestLostRaces_AreKnownInOnePlace(t *testing.T) {
	t.Parallel()
	known := 0
	for _, f := range parsedFiles(t) {
		ast.Inspect(f.file, func(n ast.Node) bool {
			if text, is := n.(*ast.BasicLit); is && text.Kind == token.STRING && (text.Value == `"40001"` || text.Value == `"40P01"`) {
				if f.name != "internal/verdict/table.go" {
					t.Errorf("%s: ask txn.LostRace", f.set.Position(text.Pos()))
				}
				known++
			}
			return true
		})
	}
	if known != 2 {
		t.Errorf("the codes are named %d times", known)
	}
}
