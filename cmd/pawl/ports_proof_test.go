//go:build proof

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// wantNoDatabasePort fails if a process or its descendants serve PostgreSQL on a port. Each user of
// the machine may connect to a port, and a private server trusts every connection.
func wantNoDatabasePort(t *testing.T, pid int) {
	t.Helper()
	ports := listening(t, pid)
	if len(ports) == 0 && runtime.GOOS == "linux" {
		t.Error("no port was found, not even that of the page: the check sees nothing")
	}
	for _, port := range ports {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Error(err)
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		// SSLRequest, to which a server responds with S or N
		_, _ = conn.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47})
		var answer [1]byte
		if n, _ := conn.Read(answer[:]); n == 1 && strings.Contains("SN", string(answer[:])) {
			t.Errorf("PostgreSQL answers on port %d", port)
		}
		_ = conn.Close()
	}
}

// listening returns the ports on which a process and its descendants listen. Linux only.
func listening(t *testing.T, pid int) (ports []int) {
	t.Helper()
	parents := map[string]string{}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		if stat, err := os.ReadFile(filepath.Join(dir, "stat")); err == nil {
			_, rest, _ := strings.Cut(string(stat), ") ")
			parents[filepath.Base(dir)] = strings.Fields(rest)[1]
		}
	}
	sockets := map[string]bool{}
	for child := range parents {
		for up := child; up != ""; up = parents[up] {
			if up != strconv.Itoa(pid) {
				continue
			}
			held, err := filepath.Glob(filepath.Join("/proc", child, "fd", "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, fd := range held {
				if to, err := os.Readlink(fd); err == nil {
					sockets[to] = true
				}
			}
		}
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, line := range regexp.MustCompile(`(?m)^ *\d+: \w+:(\w{4}) \S+ 0A (?:\S+ +){5}(\d+)`).FindAllStringSubmatch(string(text), -1) {
			if port, err := strconv.ParseInt(line[1], 16, 32); err == nil && sockets[fmt.Sprintf("socket:[%s]", line[2])] {
				ports = append(ports, int(port))
			}
		}
	}
	return ports
}
