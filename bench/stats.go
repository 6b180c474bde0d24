package main

import (
	"math"
	"slices"
)

// median returns the median of the values, or the mean of the middle two. Without values it returns
// NaN.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// spread returns the least and the greatest value.
func spread(values []float64) (least, greatest float64) {
	if len(values) == 0 {
		return math.NaN(), math.NaN()
	}
	return slices.Min(values), slices.Max(values)
}

// quantile returns the value that a share q of the values does not exceed (nearest rank). Without
// values it returns NaN.
func quantile(values []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(q * float64(len(s))))
	return s[min(max(rank, 1), len(s))-1]
}
