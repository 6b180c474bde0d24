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

// orphanAge is the least age of a directory that the sweep removes. A younger one belongs to its
// watchdog, or to a program that is about to lock it.
const orphanAge = time.Minute

// takeDir creates the directory for a server and locks it. If the program stalls in between,
// another program's sweep may lock or remove the directory. Then takeDir creates another one.
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
			_ = os.Remove(dir) // no other program uses it
			break
		}
	}
	return "", nil, fmt.Errorf("postgres: lock %s: %w", dir, err)
}

// sameFile reports whether path still names the opened directory.
func sameFile(f *os.File, path string) bool {
	opened, err1 := f.Stat()
	named, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(opened, named)
}

// lockDir takes the exclusive lock on a server directory. The lock is on the directory itself, so
// that systemd-tmpfiles also leaves it alone.
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

// sweep clears the directories of programs that died together with their watchdogs, which are not
// locked. It skips young directories, because their watchdog may be at work. It also skips those of
// other users, whose contents could name any process.
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
		return // locked, so its program runs
	}
	defer lock.Close()
	server, _ := readPidFile(filepath.Join(dir, "data"))
	if server.pid == 0 {
		server.pid = -1 // no process to stop
	}
	clearOrphan(dir, server.pid, who)
}
