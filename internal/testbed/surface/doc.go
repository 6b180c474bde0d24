// Package surface records the exported API of every public package and checks that users need all of it.
//
// The record is one file a package in docs/api, one line an exported identifier. After a change that is meant, run
//
//	go test ./internal/testbed/surface -update
//
// and read the diff as the change that users will see.
package surface
