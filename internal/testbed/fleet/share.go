package fleet

import (
	"net"
	"os"
	"syscall"
)

// Share returns a listener's socket as a file for [Fleet.Listener]. The file and all workers that
// inherit it share one file description and its O_NONBLOCK flag.
//
// [net.TCPListener.File] does not work here. os/exec calls [os.File.Fd] on inherited files, which
// clears the flag if the file is known to be pollable. A worker that accepts at that moment would
// block in the system call, and closing its listener would not end the call.
func Share(l *net.TCPListener) (*os.File, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	var file *os.File
	var failed error
	if err := raw.Control(func(fd uintptr) { file, failed = duplicate(int(fd)) }); err != nil {
		return nil, err
	}
	return file, failed
}

// duplicate returns a second descriptor. A child inherits it only through [os/exec.Cmd.ExtraFiles].
func duplicate(fd int) (*os.File, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	second, err := syscall.Dup(fd)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	syscall.CloseOnExec(second)
	return os.NewFile(uintptr(second), "listener"), nil
}
