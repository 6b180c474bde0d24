package txn_test

import (
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// No code of ours uses pgconn.SafeToRetry: it returns true for statements that the server has
// executed (pgx v5.9 to v5.12). Comments may mention it.
func TestNoCodeUsesSafeToRetry(t *testing.T) {
	t.Parallel()
	files := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		if strings.Contains(string(text), "SafeToRetry") && usesSafeToRetry(path, text) {
			t.Errorf("%s uses SafeToRetry", path)
		}
		return nil
	})
	if err != nil || files < 50 {
		t.Errorf("%d files searched: %v", files, err)
	}
}

// usesSafeToRetry reports whether the file uses SafeToRetry outside comments.
func usesSafeToRetry(name string, text []byte) bool {
	set := token.NewFileSet()
	if _, err := parser.ParseFile(set, name, text, parser.PackageClauseOnly); err != nil {
		return true
	}
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile(name, -1, len(text)), text, nil, 0) // comments are skipped
	for {
		switch _, tok, literal := s.Scan(); {
		case tok == token.EOF:
			return false
		case strings.Contains(literal, "SafeToRetry"):
			return true
		}
	}
}
