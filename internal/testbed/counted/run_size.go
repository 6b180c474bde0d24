package counted

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// mostMemory bounds the peak memory of a consumer process, in MiB.
const mostMemory = 512

// Size sends bodies as large as the broker accepts, up to 1 MiB. They arrive unaltered, and the
// consumer does not load all of them into memory.
var Size = Run{Name: "size", play: func(s *stage) error {
	orders := sized(100, 200)
	size := min(s.transport.maxBody(), 1<<20)
	// Half of the orders are sent before the consumer starts, so it finds a backlog that it could
	// read at once.
	send := func(n int) error {
		for _, o := range s.book.next(n) {
			o.Pad = strings.Repeat("x", size-len(o.body())-len(`,"pad":""`))
			if err := s.send(s.book.message(o)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := send(orders / 2); err != nil {
		return err
	}
	if err := s.start(1); err != nil {
		return err
	}
	pid := s.crew.Workers()[0].PID()
	if err := send(orders - orders/2); err != nil {
		return err
	}
	if err := s.until("each body took effect", s.patience()*4, func() (bool, error) {
		n, err := s.effects()
		return n >= orders, err
	}); err != nil {
		return err
	}
	mib, err := peakMemory(pid)
	if err != nil {
		return err
	}
	s.verdict.figure("peak memory in MiB", mib)
	s.verdict.figure("bytes of a body", float64(size))
	if mib > mostMemory {
		s.verdict.breaks("the consumer used %g MiB of memory, more than %d", mib, mostMemory)
	}
	return s.settle()
}}

// peakMemory reads the high-water mark of a process's resident set from Linux's /proc.
func peakMemory(pid int) (mib float64, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); slices.Index(words, "VmHWM:") == 0 && len(words) > 1 {
			kib, err := strconv.Atoi(words[1])
			return float64(kib) / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}
