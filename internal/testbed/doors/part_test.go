//go:build !proof

package doors_test

// oneIn is the share of the attacks that the gate plays.
const oneIn = 4
