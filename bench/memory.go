package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// memory measures the peak memory of a worker process with many waiting jobs.
func memory(variant string) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		if err := b.fill(ctx, s.waiting); err != nil {
			return r, err
		}
		worker, err := raise(ctx, variant, b.url)
		if err != nil {
			return r, err
		}
		defer worker.bury()
		for left, start := s.waiting, time.Now(); left == s.waiting && time.Since(start) < 30*time.Second; {
			if left, err = b.waiting(ctx); err != nil {
				return r, err
			}
		}
		time.Sleep(s.clean)
		r.Value, err = peak(worker.cmd.Process.Pid)
		left, counted := b.waiting(ctx)
		if err == nil && (counted != nil || left == 0 || left == s.waiting) {
			err = fmt.Errorf("%d of %d jobs are left: %v", left, s.waiting, counted)
		}
		r.Count, r.Said = s.waiting, fmt.Sprintf("%d waiting, %d done", s.waiting, s.waiting-left)
		return r, err
	}
}

// peak returns the largest resident set that a process has had, in MiB.
func peak(pid int) (mib float64, err error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			_, err = fmt.Sscanf(text, "%f kB", &mib)
			return mib / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmHWM in the status of process %d", pid)
}
