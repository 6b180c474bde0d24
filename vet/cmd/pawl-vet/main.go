// Command pawl-vet finds mistakes in code that consumes messages with PostgreSQL. It runs alone or
// under go vet:
//
//	pawl-vet ./...
//	go vet -vettool=$(which pawl-vet) ./...
//
// `pawl-vet help` lists the analyzers. See docs/guides/vet.md.
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/pawl-go/pawl/vet"
)

func main() { multichecker.Main(vet.Analyzers()...) }
