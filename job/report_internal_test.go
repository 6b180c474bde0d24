package job

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// p99 covers the recent runs only.
func TestStopwatch(t *testing.T) {
	t.Parallel()
	s := new(stopwatch)
	if runs, took := s.p99(); runs != 0 || took != 0 {
		t.Errorf("%d, %v", runs, took)
	}
	for _, c := range []struct {
		add  int
		took time.Duration
		runs int64
		want time.Duration
	}{
		{1, time.Hour, 1, time.Hour},
		{99, time.Second, 100, time.Second},
		{1, time.Hour, 101, time.Hour}, // two of 101
		{1000, time.Minute, 1101, time.Minute},
	} {
		for range c.add {
			s.add(c.took)
		}
		if runs, took := s.p99(); runs != c.runs || took != c.want {
			t.Errorf("after %d: %d runs, %v, want %v", c.runs, runs, took, c.want)
		}
	}
}

// Runs that fail or panic are timed too.
func TestHandler_TimedWhateverItsEnd(t *testing.T) {
	t.Parallel()
	for _, end := range []func() error{func() error { return nil }, func() error { return errors.New("no") }, func() error { panic("no") }} {
		h := settings{call: func(context.Context, pgx.Tx, []Job) error { return end() }}.timed()
		func() {
			defer func() { _ = recover() }()
			_ = h.call(t.Context(), nil, nil)
		}()
		if runs, _ := h.watch.p99(); runs != 1 {
			t.Errorf("%d runs", runs)
		}
	}
}
