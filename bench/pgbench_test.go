package main

import (
	"errors"
	"slices"
	"testing"
)

// If no transaction ends in the time of a run, pgbench prints no rate. The run is named so, and its
// floor is measured again, for longer.
func TestPgbench_NoTransaction(t *testing.T) {
	t.Parallel()
	h, err := startHost(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.stop)
	b, err := h.bed(t.Context(), pawlSystem)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.close(t.Context()) })
	// At this rate, the first transaction starts after hours.
	if r, err := b.pgbench(t.Context(), "select 1;\n", 1, 1, "-T", "1", "-R", "0.00001"); !errors.Is(err, errNoTransaction) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := b.pgbench(t.Context(), "select 1;\n", 1, 3, "-t", "10"); err != nil || r.Count != 30 || r.Value <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := b.pgbench(t.Context(), "select 1 from nowhere;\n", 1, 1, "-t", "1"); err == nil || errors.Is(err, errNoTransaction) {
		t.Errorf("%+v, %v", r, err)
	}
}

// A floor is measured again while no transaction ends in time. Each try takes twice as long.
func TestFloor_TriesLonger(t *testing.T) {
	t.Parallel()
	slow := errors.Join(errors.New("pgbench"), errNoTransaction)
	for name, c := range map[string]struct {
		errs []error
		want []int
		err  error
	}{
		"at once":      {[]error{nil}, []int{2}, nil},
		"stalled":      {[]error{slow, slow, nil}, []int{2, 4, 8}, nil},
		"lock timeout": {[]error{errors.New("canceling statement due to lock timeout"), nil}, []int{2, 2}, nil},
		"for good":     {[]error{slow, slow, slow, slow, slow, nil}, []int{2, 4, 8, 16, 32}, errNoTransaction},
		"another":      {[]error{errSyntax, nil}, []int{2}, errSyntax},
	} {
		var tried []int
		_, err := untilMeasured(2, func(seconds int) (Round, error) {
			tried = append(tried, seconds)
			return Round{}, c.errs[len(tried)-1]
		})
		if !errors.Is(err, c.err) || !slices.Equal(tried, c.want) {
			t.Errorf("%s: runs of %v seconds, %v", name, tried, err)
		}
	}
}

var errSyntax = errors.New("syntax error")
