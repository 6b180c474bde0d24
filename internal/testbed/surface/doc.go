// Package surface records the exported API of every public package and checks that users need all
// of it.
//
// The record is in docs/api, one file per package with one line per exported identifier. After an
// intended change, run
//
//	go test ./internal/testbed/surface -update
//
// and review the diff, which is what users will see.
package surface
