package postgres

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockDir takes the exclusive lock on a server directory. The lock is on the directory itself: systemd-tmpfiles then
// leaves it alone too.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// sweep clears the directories of programs that died together with their watchdogs: nobody holds the lock. Young ones
// are skipped, since their watchdog may be at work; so are those of other users, whose contents could name any process.
func (o Options) sweep(who identity) {
	for _, parent := range o.parents() {
		dirs, _ := filepath.Glob(filepath.Join(parent, prefix+"*"))
		for _, dir := range dirs {
			if o.isOrphanOf(who, dir) {
				o.sweepOne(dir, who)
			}
		}
	}
}

func (o Options) isOrphanOf(who identity, dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || time.Since(info.ModTime()) < o.tune.sweepAge {
		return false
	}
	return int(info.Sys().(*syscall.Stat_t).Uid) == who.uid
}

func (o Options) sweepOne(dir string, who identity) {
	lock, err := lockDir(dir)
	if err != nil {
		return // held: its program lives
	}
	defer lock.Close()
	server, _ := readPidFile(filepath.Join(dir, "data"))
	if server.pid == 0 {
		server.pid = -1 // nothing to stop
	}
	clearOrphan(dir, server.pid, who)
}
