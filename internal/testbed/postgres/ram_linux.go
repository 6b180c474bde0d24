package postgres

import "syscall"

// ramDir returns a directory in memory if more than 1 GiB is free there. A container's /dev/shm
// often has 64 MiB.
func ramDir() (string, bool) {
	const dir, enough = "/dev/shm", 1 << 30
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return "", false
	}
	return dir, st.Bavail*uint64(st.Bsize) > enough
}
