package postgres

import (
	"os"
	"syscall"
)

// namespaces reports whether this system has user namespaces. A container's seccomp profile or the distribution's
// AppArmor rules may still refuse them; that shows when the first child is started.
const namespaces = true

// nobody is the user id that stands in /etc/passwd on every Linux we know of.
const nobody = 65534

// mapToNobody starts the child in a user namespace where our own id is called nobody: PostgreSQL sees neither root nor
// a nameless user, and the files stay ours.
func mapToNobody(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getegid(), Size: 1}}
}
