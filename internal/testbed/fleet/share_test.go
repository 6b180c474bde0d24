package fleet

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A shared socket stays non-blocking when child processes inherit it, so that no Accept blocks in
// the system call.
func TestShare_StaysNonBlocking(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		share       func(*net.TCPListener) (*os.File, error)
		nonBlocking bool
	}{
		"as it is":                {Share, true},
		"mutant: the file of net": {(*net.TCPListener).File, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			file, err := c.share(l.(*net.TCPListener))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			start := exec.Command("true")
			start.ExtraFiles = []*os.File{file}
			if err := start.Run(); err != nil {
				t.Fatal(err)
			}
			if got := nonBlocking(t, l.(*net.TCPListener)); got != c.nonBlocking {
				t.Errorf("non-blocking: %t, want %t", got, c.nonBlocking)
			}
		})
	}
}

// nonBlocking returns the flag of a listener's file description.
func nonBlocking(t *testing.T, l *net.TCPListener) bool {
	t.Helper()
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var flags uintptr
	var failed syscall.Errno
	if err := raw.Control(func(fd uintptr) { flags, _, failed = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0) }); err != nil || failed != 0 {
		t.Fatal(err, failed)
	}
	return flags&syscall.O_NONBLOCK != 0
}
