package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The names of our files in a kept data directory.
const (
	linkFile  = "pawl.socket" // link to the socket's directory while a server runs
	namedFile = "named"       // in the socket's directory: link to the link that points there
	// holderFile is locked (flock) by the program that holds the directory, and contains its
	// process id.
	holderFile = "pawl.lock"
	// unfinished marks a directory whose cluster is being created and that contains no user data
	// yet.
	unfinished = "pawl.unfinished"
)

// ErrBusy means that another program holds the data directory. The error text contains its process
// id.
var ErrBusy = errors.New("data directory is in use")

func busy(dir string, pid int) error {
	by := "another process"
	if pid > 0 {
		by = fmt.Sprintf("process %d", pid)
	}
	return fmt.Errorf("postgres: %w: %s is held by %s (stop that process, or choose another directory)", ErrBusy, dir, by)
}

// A keep holds a data directory that survives this process. Its methods accept nil, which keeps
// nothing.
type keep struct {
	dir    string
	holder *os.File
}

// takeDataDir creates dir if needed and locks it. If a dead program left its server running in dir,
// takeDataDir first stops that server cleanly.
func takeDataDir(dir string, who identity) (*keep, error) {
	if err := makeDataDir(dir, who); err != nil {
		return nil, fmt.Errorf("postgres: data directory: %w", err)
	}
	if err := mayHold(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, holderFile)
	holder, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("postgres: data directory: %w", err)
	}
	if err := syscall.Flock(int(holder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer holder.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, busy(dir, readPid(path))
		}
		return nil, fmt.Errorf("postgres: lock %s: %w", path, err)
	}
	k := &keep{dir: dir, holder: holder}
	if err := errors.Join(who.own(path), k.sign()); err != nil {
		k.release()
		return nil, fmt.Errorf("postgres: data directory: %w", err)
	}
	// We hold the lock, so the program that started a server of ours here is dead.
	if orphan, ok := readPidFile(dir); ok && strings.HasPrefix(filepath.Base(orphan.socketDir), prefix) {
		clearOrphan(orphan.socketDir, orphan.pid, who)
	}
	return k, nil
}

// mayHold refuses a directory with foreign files before any file of ours is created there.
func mayHold(dir string) error {
	for _, name := range []string{unfinished, "PG_VERSION"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return nil
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("postgres: data directory: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() != holderFile {
			return fmt.Errorf("postgres: data directory %s is neither empty nor a PostgreSQL cluster (choose another directory)", dir)
		}
	}
	return nil
}

func makeDataDir(dir string, who identity) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return err
	}
	return errors.Join(os.Chmod(dir, 0o700), who.own(dir))
}

func (k *keep) sign() error {
	if err := k.holder.Truncate(0); err != nil {
		return err
	}
	_, err := k.holder.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func (k *keep) release() {
	if k != nil {
		_ = k.holder.Close()
	}
}

// prepare reports whether the directory already contains a cluster. Otherwise it removes the files
// of an interrupted start and marks the directory as unfinished.
func (k *keep) prepare(who identity) (exists bool, err error) {
	if k == nil {
		return false, nil
	}
	mark := filepath.Join(k.dir, unfinished)
	if _, err := os.Lstat(mark); err == nil {
		return false, emptyDir(k.dir)
	}
	if _, err := os.Lstat(filepath.Join(k.dir, "PG_VERSION")); err == nil {
		return true, nil
	}
	if err := mayHold(k.dir); err != nil { // again, now under the lock
		return false, err
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return false, fmt.Errorf("postgres: data directory: %w", err)
	}
	return false, who.own(mark)
}

// link creates the path under which clients find the socket's directory dir, and returns it. The
// path is the same at each start. The directory is new at each start, so a dead program's watchdog
// can remove only its own.
func (k *keep) link(o Options, dir string, who identity) (string, error) {
	if k == nil {
		return dir, nil
	}
	name := o.linkName(k.dir)
	_ = os.Remove(name) // left by a killed program: we hold the data directory, so it is unused
	if err := os.Symlink(name, filepath.Join(dir, namedFile)); err != nil {
		return "", fmt.Errorf("postgres: %w", err)
	}
	err := os.Symlink(dir, name)
	if err == nil {
		err = who.own(name) // the watchdog removes it
	}
	if err != nil {
		return "", fmt.Errorf("postgres: a name for the socket: %w (remove what is there, or choose a data directory with a shorter path)", err)
	}
	return name, nil
}

// complete removes the mark once the first server has answered. From then on the directory contains
// data.
func (k *keep) complete(durable bool) error {
	if k == nil {
		return nil
	}
	mark := filepath.Join(k.dir, unfinished)
	if _, err := os.Lstat(mark); err != nil {
		return nil
	}
	if durable {
		syscall.Sync() // initdb and our copy did not sync the files
	}
	return os.Remove(mark)
}

// A pidFile is the content of a running server's postmaster.pid.
type pidFile struct {
	pid       int
	socketDir string
}

func readPidFile(dir string) (pidFile, bool) {
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return pidFile{}, false
	}
	// pid, data directory, start time, port, socket directory.
	lines := strings.Split(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 0 || len(lines) < 5 {
		return pidFile{}, false
	}
	return pidFile{pid: pid, socketDir: lines[4]}, true
}

func readPid(path string) int {
	text, _ := os.ReadFile(path)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

// clusterMajor returns the major version of the cluster in dir, or 0 if there is none.
func clusterMajor(dir string) int {
	if dir == "" {
		return 0
	}
	return readPid(filepath.Join(dir, "PG_VERSION"))
}

// clearOrphan stops the server of a dead program and removes its directory, as its watchdog would
// have.
func clearOrphan(dir string, pid int, who identity) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*cleanStop)
	defer cancel()
	cmd := watchdogCommand(ctx, dir, who)
	cmd.Stdin = strings.NewReader(fmt.Sprintf("%d\n", pid))
	_ = cmd.Run()
}
