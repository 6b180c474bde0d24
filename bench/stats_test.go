package main

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.of); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.of, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing must be no number")
	}
}

func TestQuantile_IsTheNearestRank(t *testing.T) {
	t.Parallel()
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	for _, c := range []struct{ q, want float64 }{{0, 1}, {0.5, 50}, {0.99, 99}, {1, 100}} {
		if got := quantile(hundred, c.q); got != c.want {
			t.Errorf("quantile %v of 1..100 = %v, want %v", c.q, got, c.want)
		}
	}
	if got := quantile([]float64{7, 8}, 0.99); got != 8 {
		t.Errorf("the 99th percentile of two values is the greater, got %v", got)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	if least, greatest := spread([]float64{2, 9, 1}); least != 1 || greatest != 9 {
		t.Errorf("spread = %v, %v", least, greatest)
	}
}

// A command's name may contain spaces and parentheses, so fields are counted after its end.
func TestProcessTimes_ReadsPastTheName(t *testing.T) {
	t.Parallel()
	pid, parent, own, waited := processTimes("42 (a (b) c) S 7 1 1 0 -1 0 0 0 0 0 150 50 300 100 20 0 1")
	if pid != 42 || parent != 7 || own != 2 || waited != 4 {
		t.Errorf("got pid %d, parent %d, own %v s, waited %v s", pid, parent, own, waited)
	}
}
