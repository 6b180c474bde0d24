package vet

import (
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
)

// Each analyzer finds the mistakes of bad.go, and is silent on good.go, which looks like it.
func TestAnalyzers_FindTheMistakesAndNoOthers(t *testing.T) {
	t.Parallel()
	for name, analyzer := range map[string]*analysis.Analyzer{
		"ack": ackBeforeCommit, "apart": markApart, "outside": callInTx, "swallow": swallowedSQL, "key": keyWithoutHash, "act": selectThenAct,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			analysistest.Run(t, analysistest.TestData(), analyzer, name)
		})
	}
}
