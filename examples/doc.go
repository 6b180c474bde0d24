// Package examples holds the programs that the guides show. They are a module of its own, so that they may use every
// part of Pawl; each is run by a test.
package examples
