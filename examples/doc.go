// Package examples holds the programs that the guides show, each run by a test. They are a separate
// module, so that they may use every part of Pawl.
package examples
