package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// orphanAge is how old a directory must be for the sweep. A younger one is left to its watchdog, or to the program that is about to lock it.
const orphanAge = time.Minute

// takeDir makes the directory for a server and locks it. A program that stalls between the two may lose the directory to the sweep
// of another, which takes the lock or removes it: then it makes another one.
func (o Options) takeDir(who identity) (dir string, lock *os.File, err error) {
	for range 5 {
		if dir, err = o.makeDir(who); err != nil {
			return "", nil, err
		}
		o.tune.made(dir)
		lock, err = lockDir(dir)
		if err == nil && sameFile(lock, dir) {
			return dir, lock, nil
		}
		if err == nil {
			_ = lock.Close()
			err = fs.ErrNotExist
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(dir) // no other program is at work in it
			break
		}
	}
	return "", nil, fmt.Errorf("postgres: lock %s: %w", dir, err)
}

// sameFile reports whether the opened directory is still the one of that name.
func sameFile(f *os.File, path string) bool {
	opened, err1 := f.Stat()
	named, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(opened, named)
}

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
	if err != nil || !info.IsDir() || time.Since(info.ModTime()) < orphanAge {
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
