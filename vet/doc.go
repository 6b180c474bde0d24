// Package vet finds mistakes in Go code that consumes messages or webhooks with PostgreSQL. The
// code need not use Pawl.
//
// Each analyzer looks for one mistake, and its report names the page with the right way to do it
// (docs/guides/patterns.md). Run all of them with go vet:
//
//	go install github.com/pawl-go/pawl/vet/cmd/pawl-vet@latest
//	go vet -vettool=$(which pawl-vet) ./...
//
// or give [Analyzers] to another driver of go/analysis. docs/guides/vet.md shows each mistake, what
// the analyzers cannot see, and how to silence one line.
//
//	vet.go        the list, reports, and lines that are silenced
//	sqltext.go    which tables a statement reads and writes
//	handle.go     transactions and pools, and which of them a value is
//	broker.go     brokers: receive, acknowledge, send
//	calls.go      the calls of a function that matter here, with those of the functions it calls
//	path.go       whether one instruction can run after another
//	decision.go   the branches on the result of a SELECT
//	ack.go, apart.go, outside.go, swallow.go, key.go, act.go   the six analyzers
package vet
