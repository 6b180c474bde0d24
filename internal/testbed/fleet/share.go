package fleet

import (
	"net"
	"os"
	"syscall"
)

// Share returns a listener's socket as a file for [Fleet.Listener]. The file and all workers that
// inherit it share one file description, and with it the flag O_NONBLOCK. [net.TCPListener.File]
// would not do: os/exec calls [os.File.Fd] on what it hands to a process, which clears that flag if
// the file is known to be pollable. A worker that accepts at that moment would block in the system
// call, where closing its listener does not reach it.
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

// duplicate returns a second descriptor, which is inherited only where it is named in
// [os/exec.Cmd.ExtraFiles].
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
