package postgres

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/patience"
)

func kill(t *testing.T, pid int) {
	t.Helper()
	must(t, syscall.Kill(pid, syscall.SIGKILL))
}

// A killed program leaves no server and no directory.
func TestDeath_OfTheProgramClearsAThrowaway(t *testing.T) {
	t.Parallel()
	_, h := hold(t)
	kill(t, h.Program)
	patience.Until(t, "server gone", func() bool { return !running(h.Server) })
	patience.Until(t, "directory gone", func() bool { return !exists(h.Dir) })
	patience.Until(t, "watchdog gone", func() bool { return !running(h.Watchdog) })
}

// A killed program leaves its kept data after a clean shutdown, and nothing else.
func TestDeath_OfTheProgramKeepsKeptData(t *testing.T) {
	t.Parallel()
	data := filepath.Join(sharedDir(t), "data")
	_, h := hold(t, "DATA_DIR="+data)
	kill(t, h.Program)
	patience.Until(t, "server gone", func() bool { return !running(h.Server) })
	patience.Until(t, "socket directory gone", func() bool { return !exists(h.Dir) })
	if link := filepath.Join(data, linkFile); exists(link) {
		t.Errorf("left %s, which leads nowhere", link)
	}

	s := startServer(t, Options{DataDir: data})
	if log, _ := os.ReadFile(s.logFile()); strings.Contains(string(log), "not properly shut down") {
		t.Errorf("the watchdog did not let it finish:\n%s", log)
	}
}

// The next program may start on the kept data at once. It waits for the old server instead of
// failing.
func TestDeath_OfTheProgramLetsTheNextOneStartAtOnce(t *testing.T) {
	t.Parallel()
	data := filepath.Join(sharedDir(t), "data")
	cmd, h := hold(t, "DATA_DIR="+data)
	kill(t, h.Program)
	_ = cmd.Wait() // the kernel has released its locks
	s := startServer(t, Options{DataDir: data})
	query(t, s, "select 'served'")
	if running(h.Server) {
		t.Error("two servers on one data directory")
	}
}

// If program and watchdog are killed together, the next start removes what they left.
func TestDeath_OfTheWatchdogTooIsSweptAtTheNextStart(t *testing.T) {
	t.Parallel()
	temp := sharedDir(t)
	cmd, h := hold(t, "TEMP_DIR="+temp)
	kill(t, h.Watchdog)
	kill(t, h.Program)
	_ = cmd.Wait()
	if !running(h.Server) {
		t.Fatal("the server did not outlive both: there is nothing to sweep")
	}
	bystander := startServer(t, Options{tune: tuning{temp: temp}})
	old := time.Now().Add(-2 * orphanAge)
	for _, dir := range []string{h.Dir, bystander.Dir()} {
		must(t, os.Chtimes(dir, old, old))
	}

	startServer(t, Options{tune: tuning{temp: temp}})
	patience.Until(t, "orphan stopped", func() bool { return !running(h.Server) })
	patience.Until(t, "its directory removed", func() bool { return !exists(h.Dir) })
	query(t, bystander, "select 'its owner lives, so the sweep let it be'")
}

// If program and watchdog are killed together on kept data, the next start on it stops the orphaned
// server and serves.
func TestDeath_OfTheWatchdogTooDoesNotBlockKeptData(t *testing.T) {
	t.Parallel()
	data := filepath.Join(sharedDir(t), "data")
	cmd, h := hold(t, "DATA_DIR="+data)
	kill(t, h.Watchdog)
	kill(t, h.Program)
	_ = cmd.Wait()
	s := startServer(t, Options{DataDir: data})
	query(t, s, "select 'served'")
	if running(h.Server) || exists(h.Dir) {
		t.Errorf("orphan running %v, its directory there %v", running(h.Server), exists(h.Dir))
	}
}

// A directory with foreign files is refused, and nothing of ours is created there.
func TestKeep_ForeignDirectoryStaysAsItIs(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	must(t, os.WriteFile(filepath.Join(dir, "hosts"), nil, 0o644))
	if _, err := Start(t.Context(), Options{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "neither empty nor a PostgreSQL cluster") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("in there now: %v", left)
	}
}

// A young orphaned directory is left to its watchdog.
func TestSweep_LeavesYoungDirectoriesAlone(t *testing.T) {
	t.Parallel()
	temp := sharedDir(t)
	s := startServer(t, Options{tune: tuning{temp: temp}})
	orphan := filepath.Join(temp, prefix+"1")
	must(t, os.Mkdir(orphan, 0o700))
	must(t, s.who.own(orphan))
	o, err := Options{tune: tuning{temp: temp}}.withDefaults()
	must(t, err)

	o.sweep(s.who)
	if !exists(orphan) {
		t.Error("swept a directory made a moment ago")
	}
	old := time.Now().Add(-2 * orphanAge)
	must(t, os.Chtimes(orphan, old, old))
	o.sweep(s.who)
	if exists(orphan) || !exists(s.Dir()) {
		t.Errorf("orphan there %v, held directory there %v", exists(orphan), exists(s.Dir()))
	}
}

// A start that stalls between creating and locking its directory may lose it to the sweep of
// another program. It creates another one.
func TestStart_OutlivesASweepOfItsFreshDirectory(t *testing.T) {
	t.Parallel()
	who := startServer(t, Options{}).who
	for name, take := range map[string]func(dir string) *os.File{
		"swept":       func(dir string) *os.File { must(t, os.Remove(dir)); return nil },
		"being swept": func(dir string) *os.File { lock, err := lockDir(dir); must(t, err); return lock },
		"swept between the open and the lock": func(dir string) *os.File {
			must(t, os.Remove(dir))
			must(t, os.Mkdir(dir, 0o700)) // another program takes the name
			lock, err := lockDir(dir)
			must(t, err)
			return lock
		},
	} {
		var held []*os.File
		made := 0
		o, err := Options{tune: tuning{temp: sharedDir(t), made: func(dir string) {
			if made++; made < 3 {
				held = append(held, take(dir))
			}
		}}}.withDefaults()
		must(t, err)
		dir, lock, err := o.takeDir(who)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if made != 3 || !exists(dir) {
			t.Errorf("%s: made %d directories, the last is there: %v", name, made, exists(dir))
		}
		_ = lock.Close()
		for _, lock := range held {
			_ = lock.Close()
		}
	}
}

// A stale pid file never makes the sweep signal a process that reuses the id.
func TestSweep_DoesNotSignalAnotherProcessOfTheSameNumber(t *testing.T) {
	t.Parallel()
	temp := sharedDir(t)
	s := startServer(t, Options{tune: tuning{temp: temp}})
	orphan := filepath.Join(temp, prefix+"2")
	must(t, os.MkdirAll(filepath.Join(orphan, "data"), 0o700))
	pidfile := strings.Join([]string{itoa(s.PID()), orphan + "/data", "1", port, orphan, ""}, "\n")
	must(t, os.WriteFile(filepath.Join(orphan, "data", "postmaster.pid"), []byte(pidfile), 0o644))
	for _, path := range []string{"data/postmaster.pid", "data", ""} {
		must(t, s.who.own(filepath.Join(orphan, path)))
	}
	clearOrphan(orphan, s.PID(), s.who)
	if exists(orphan) {
		t.Error("not cleared")
	}
	query(t, s, "select 'still here'")
}

// Done is closed if the server exits by itself.
func TestDone_ClosesWhenTheServerEndsByItself(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{RAM: true})
	must(t, syscall.Kill(s.PID(), syscall.SIGINT))
	patience.Receive(t, "the end of the server is told", s.Done())
}

// Committed rows exist after Stop and Start.
func TestKeep_KeepsRowsAcrossStarts(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{true, false} {
		o := Options{DataDir: filepath.Join(sharedDir(t), "data"), Durable: durable}
		s := startServer(t, o)
		query(t, s, "create table kept as select 'yes' as v; select 'made'")
		dir := s.Dir()
		must(t, s.Stop())
		if exists(dir) || exists(filepath.Join(o.DataDir, unfinished)) {
			t.Error("left its socket directory or its mark behind")
		}
		if got := query(t, startServer(t, o), "select v from kept"); got != "yes" {
			t.Errorf("durable %v: got %s", durable, got)
		}
	}
}

// A kept cluster always has the same URL, even if its path is too long or contains special
// characters. Two clusters have two URLs, and both serve.
func TestKeep_TheURLStays(t *testing.T) {
	t.Parallel()
	temp := sharedDir(t)
	inside, long := filepath.Join(sharedDir(t), "data"), filepath.Join(sharedDir(t), strings.Repeat("x", 100))
	urls := map[string]bool{}
	for _, data := range []string{inside, long, filepath.Join(sharedDir(t), "a,b"), filepath.Join(sharedDir(t), "a +%20'b")} {
		o := Options{DataDir: data, tune: tuning{temp: temp}}
		s := startServer(t, o)
		query(t, s, "create table kept as select 'yes' as v; select 'made'")
		first, link := s.URL("postgres"), s.host
		must(t, s.Stop())
		if _, err := os.Lstat(link); err == nil {
			t.Errorf("left %s behind", link)
		}
		must(t, os.Symlink("/nowhere", link)) // as a killed program leaves it
		s = startServer(t, o)
		if got := query(t, s, "select v from kept"); got != "yes" || s.URL("postgres") != first || urls[first] {
			t.Errorf("%s: got %s; the URL was %s and is %s", data, got, first, s.URL("postgres"))
		}
		urls[first] = true // it keeps running beside the others
	}
	if link := (Options{}).linkName(inside); link != filepath.Join(inside, linkFile) {
		t.Errorf("a short path has its socket at %s", link)
	}
}

// The second program on a data directory gets a one-line error that names the first one's process.
func TestKeep_SecondHolderGetsErrBusy(t *testing.T) {
	t.Parallel()
	data := filepath.Join(sharedDir(t), "data")
	_, h := hold(t, "DATA_DIR="+data)
	_, err := Start(t.Context(), Options{DataDir: data})
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "process "+itoa(h.Program)) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	if !running(h.Server) {
		t.Error("the first holder lost its server")
	}
}

// If a server that was started elsewhere runs on the data directory, Start fails with ErrBusy and
// leaves it alone.
func TestKeep_LeavesAForeignServerAlone(t *testing.T) {
	t.Parallel()
	data := filepath.Join(sharedDir(t), "data")
	s := startServer(t, Options{DataDir: data})
	must(t, s.keep.holder.Close()) // as if the server was started by hand
	pid, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	must(t, err)
	foreign := strings.ReplaceAll(string(pid), s.Dir(), "/run/postgresql")
	must(t, os.WriteFile(filepath.Join(data, "postmaster.pid"), []byte(foreign), 0o600))

	_, err = Start(t.Context(), Options{DataDir: data})
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "process "+itoa(s.PID())) {
		t.Errorf("got %v", err)
	}
	query(t, s, "select 'still here'")
}

// After a start that was interrupted while it created the cluster, the next start succeeds.
func TestKeep_FinishesWhatAnInterruptedStartLeft(t *testing.T) {
	t.Parallel()
	o := Options{DataDir: filepath.Join(sharedDir(t), "data")}
	must(t, startServer(t, o).Stop())
	must(t, os.Remove(filepath.Join(o.DataDir, "global", "pg_control")))
	must(t, os.WriteFile(filepath.Join(o.DataDir, unfinished), nil, 0o600))
	query(t, startServer(t, o), "select 'served'")
}

// A directory with foreign files is not used as a cluster.
func TestKeep_RefusesADirectoryWithOtherThings(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	must(t, os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("x"), 0o644))
	if _, err := Start(t.Context(), Options{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "neither empty") {
		t.Errorf("got %v", err)
	}
	if !exists(filepath.Join(dir, "thesis.txt")) {
		t.Error("removed somebody's file")
	}
}

// A directory whose path is too long for the socket is skipped.
func TestPlace_FallsBackFromALongPath(t *testing.T) {
	t.Parallel()
	long := filepath.Join(sharedDir(t), strings.Repeat("x", 100))
	must(t, os.Mkdir(long, 0o777))
	s := startServer(t, Options{tune: tuning{temp: long}})
	if !strings.HasPrefix(s.Dir(), "/tmp/"+prefix) {
		t.Errorf("went to %s", s.Dir())
	}
}

// A directory that the server's user cannot reach is also skipped. A server that runs as our user
// can reach all.
func TestPlace_ChecksEveryParent(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(sharedDir(t), "closed", "temp")
	must(t, os.MkdirAll(closed, 0o700))
	other := identity{name: "another user", uid: os.Geteuid() + 1, gid: os.Getegid() + 1, switches: true}
	if other.reaches(closed) {
		t.Error("walks through a closed directory")
	}
	if !other.reaches("/tmp") {
		t.Error("cannot reach /tmp")
	}
	if self := (identity{uid: os.Geteuid()}); !self.reaches(closed) {
		t.Error("cannot reach our own directory")
	}
}

// A directory named by the caller must contain the binaries.
func TestFind_RefusesADirectoryWithoutBinaries(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{BinDir: "/nowhere"})
	if err == nil || !strings.Contains(err.Error(), "/nowhere does not hold initdb and postgres (BinDir must name") {
		t.Errorf("got %v", err)
	}
}

// Data of another major version is refused before any server opens it.
func TestFind_RefusesDataOfAnotherMajorVersion(t *testing.T) {
	t.Parallel()
	data := filepath.Join(sharedDir(t), "data")
	o := Options{DataDir: data}
	s := startServer(t, o)
	must(t, s.Stop())
	must(t, os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("9\n"), 0o600))
	o.BinDir = s.bin
	if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "was made by PostgreSQL 9") {
		t.Errorf("got %v", err)
	}
}
