package postgres

import (
	"os"
	"syscall"
)

// namespaces reports whether this system has user namespaces. A container's seccomp profile or
// AppArmor may still forbid them, which makes the first child fail to start.
const namespaces = true

// nobody is the user id of the user nobody in /etc/passwd on the known Linux distributions.
const nobody = 65534

// mapToNobody starts the child in a user namespace that maps our user id to nobody. PostgreSQL then
// sees neither root nor a user without a name, and the files stay ours.
func mapToNobody(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getegid(), Size: 1}}
}
