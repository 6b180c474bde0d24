package conns_test

import (
	"slices"
	"testing"

	"github.com/pawl-go/pawl/internal/conns"
)

// The sum of the shares does not exceed the pool, and each part gets its minimum. No connection is
// left over that a part could use.
func TestDivide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pool  int
		least []int
		grows []bool
		want  []int
		fits  bool
	}{
		{20, []int{4, 3, 2, 4}, []bool{true, true, false, false}, []int{7, 7, 2, 4}, true},
		{13, []int{4, 3, 2, 4}, []bool{true, true, false, false}, []int{4, 3, 2, 4}, true},
		{12, []int{4, 3, 2, 4}, []bool{true, true, false, false}, nil, false},
		{15, []int{4, 4}, []bool{true, true}, []int{7, 8}, true},
		{10, []int{2}, []bool{false}, []int{2}, true},
		{10, nil, nil, nil, true},
	} {
		shares, fits := conns.Divide(c.pool, c.least, c.grows)
		if fits != c.fits || fits && !slices.Equal(shares, c.want) {
			t.Errorf("%d connections for %v: %v, %v; want %v, %v", c.pool, c.least, shares, fits, c.want, c.fits)
		}
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{0: 10, 1: 1, 10: 10} {
		if got, err := conns.Limit(limit, 10); err != nil || got != want {
			t.Errorf("limit %d: %d, %v", limit, got, err)
		}
	}
	for _, limit := range []int{-1, 11} {
		if _, err := conns.Limit(limit, 10); err == nil {
			t.Errorf("limit %d of 10 connections is accepted", limit)
		}
	}
}
