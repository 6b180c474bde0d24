package vet

import (
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
)

// together runs all analyzers, so that each package of the test data is loaded once and also shows
// what the others say about it.
var together = &analysis.Analyzer{
	Name: "together", Doc: "run all analyzers", Requires: []*analysis.Analyzer{calls},
	Run: func(pass *analysis.Pass) (any, error) {
		for _, a := range Analyzers() {
			own := *pass
			own.Analyzer = a
			if _, err := a.Run(&own); err != nil {
				return nil, err
			}
		}
		return nil, nil
	},
}

// The analyzers find the mistakes of bad.go, and are silent on good.go, which looks like it.
func TestAnalyzers_FindTheMistakesAndNoOthers(t *testing.T) {
	t.Parallel()
	analysistest.Run(t, analysistest.TestData(), together, "ack", "apart", "outside", "swallow", "key", "act")
}

// The names and requirements of the analyzers are what drivers expect.
func TestAnalyzers_AreValid(t *testing.T) {
	t.Parallel()
	if err := analysis.Validate(Analyzers()); err != nil {
		t.Error(err)
	}
}
