// Command release prepares releases of Pawl and tests that they can be fetched. RELEASING.md says
// when to run it.
//
//	go run ./internal/testbed/release COMMAND
//
//	set v0.2.0          write the version into every go.mod, go.sum and go.work
//	check v0.2.0        report whether this tree can be tagged v0.2.0
//	tags v0.2.0         print the tags in the order in which a proxy must see them
//	build v0.2.0 DIR    write the binaries, Debian packages and checksums of this tree
//	modules             report whether each module, by itself, requires what it imports
//
// All published modules have one version and are tagged at one commit. That is possible because a
// module's hash depends only on its own files. The command set computes the hashes from the tree,
// the core first, and writes them into the go.sum files that need them.
//
// It is a separate module so that the core does not require golang.org/x/mod.
package main
