package main

import (
	"os"
	"testing"
)

func TestPage_IsCurrent(t *testing.T) {
	t.Parallel()
	written, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != string(page()) {
		t.Error("docs/reference/metrics.md is stale: run go generate in observe/")
	}
}
