package brokers

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// moves reports whether a thread of a process group still runs. It reads /proc. Without /proc it
// returns false.
func moves(group int) bool {
	threads, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/stat") // the pattern is valid
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread has ended
		}
		// The format is "pid (name) state parent group …". The name may contain any character.
		_, behind, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(behind)
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && !strings.Contains("TtZX", fields[0]) {
			return true
		}
	}
	return false
}
