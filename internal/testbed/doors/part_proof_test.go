//go:build proof

package doors_test

// oneIn is the share of the attacks that the proof plays: all.
const oneIn = 1
