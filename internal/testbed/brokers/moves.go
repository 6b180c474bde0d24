package brokers

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// moves reports whether a thread of a process group is not stopped. It reads /proc; where there is none, all stand still.
func moves(group int) bool {
	threads, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/stat") // a pattern that is correct
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent group …; the name may hold anything
		_, behind, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(behind)
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && !strings.Contains("TtZX", fields[0]) {
			return true
		}
	}
	return false
}
