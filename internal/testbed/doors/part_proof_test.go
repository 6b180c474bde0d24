//go:build proof

package doors_test

// oneIn is the divisor of the attacks that the proof plays: all.
const oneIn = 1
