//go:build !proof

package doors_test

// oneIn is the divisor of the attacks that the gate plays: one in four.
const oneIn = 4
