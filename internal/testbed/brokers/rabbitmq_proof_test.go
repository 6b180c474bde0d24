//go:build proof

package brokers

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// soon bounds how long a server may take to answer or to end on a busy machine.
const soon = time.Minute

// A broker serves, is killed, restarts on its port, is frozen and woken, and leaves nothing behind.
// All its ports are on loopback.
func TestRabbitMQ_LivesAndDies(t *testing.T) {
	t.Parallel()
	s, err := RabbitMQ(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	addr, first := s.Addr(), members(t, s.cmd.Process.Pid)
	if len(first) < 3 {
		t.Fatalf("shell, port mapper and server are %d processes: %v", len(first), first)
	}
	wantLoopback(t, s)
	s.Kill()
	gone(t, first)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr {
		t.Errorf("it came back at %s, and was at %s", s.Addr(), addr)
	}
	s.Freeze()
	if rabbitGreets(t.Context(), s) == nil {
		t.Error("it greets while it is frozen")
	}
	s.Wake()
	for end := time.Now().Add(soon); rabbitGreets(t.Context(), s) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not greet after Wake")
		}
	}
	second := members(t, s.cmd.Process.Pid)
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	gone(t, second)
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
}

// If the server's Erlang process dies, its port mapper ends too, and Done is closed.
func TestRabbitMQ_DoneWhenTheServerEndsByItself(t *testing.T) {
	t.Parallel()
	s, err := RabbitMQ(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	all, killed := members(t, s.cmd.Process.Pid), false
	for pid, args := range all {
		if strings.Contains(args, "beam") {
			killed = syscall.Kill(pid, syscall.SIGKILL) == nil
		}
	}
	if !killed {
		t.Fatalf("no beam among %v", all)
	}
	select {
	case <-s.Done():
	case <-time.After(soon):
		t.Fatal("nothing heard")
	}
	gone(t, all)
}

// Kept data and the port are the same at the next start, after a clean shutdown.
func TestRabbitMQ_KeepsItsDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := 0
	for range 2 {
		s, err := RabbitMQ(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		all := members(t, s.cmd.Process.Pid)
		if port != 0 && s.Port() != port {
			t.Errorf("it is on port %d, and was on %d", s.Port(), port)
		}
		port = s.Port()
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		gone(t, all)
	}
	log, err := os.ReadFile(filepath.Join(dir, "log", "rabbit.log"))
	if err != nil || !strings.Contains(string(log), "stopped TCP listener") {
		t.Errorf("it did not stop in good order: %v\n%s", err, log)
	}
}

// holdEnv makes TestRabbitMQ_Program a program that starts a broker and holds it.
const holdEnv = "PAWL_TEST_HOLD_RABBITMQ"

// A holder describes the broker that a program holds.
type holder struct {
	Leader int
	Dir    string
}

// TestRabbitMQ_Program is not a test but the program that other tests start and kill.
func TestRabbitMQ_Program(t *testing.T) {
	if os.Getenv(holdEnv) == "" {
		return
	}
	s, err := RabbitMQ(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	line, _ := json.Marshal(holder{s.cmd.Process.Pid, s.Dir()})
	fmt.Println("held " + string(line))
	_, _ = io.Copy(io.Discard, os.Stdin) // until this process is killed or the test has ended
}

func hold(t *testing.T, cmd *exec.Cmd) (h holder) {
	t.Helper()
	cmd.Args = append(cmd.Args, "-test.run=^TestRabbitMQ_Program$")
	cmd.Env = append(os.Environ(), holdEnv+"=yes")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if text, is := strings.CutPrefix(lines.Text(), "held "); is {
			if err := json.Unmarshal([]byte(text), &h); err != nil {
				t.Fatal(err)
			}
			return h
		}
	}
	t.Fatalf("no broker:\n%s", said.String())
	return h
}

// A killed program leaves no process and no directory.
func TestRabbitMQ_DeathOfTheProgramClearsAll(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	h := hold(t, cmd)
	all := members(t, h.Leader)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, all)
	for end := time.Now().Add(soon); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(h.Dir); os.IsNotExist(err) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is left", h.Dir)
		}
	}
}

// RabbitMQ needs no privileges and no directory of the package's user.
func TestRabbitMQ_AsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	const nobody = 65534
	cmd := exec.Command(os.Args[0])
	if os.Geteuid() == 0 { // an ordinary user runs all tests without privileges
		cmd = exec.Command(readable(t, os.Args[0]))
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	h := hold(t, cmd)
	if info, err := os.Stat(h.Dir); err != nil || os.Geteuid() == 0 && info.Sys().(*syscall.Stat_t).Uid != nobody {
		t.Errorf("its directory is of another user: %+v, %v", info, err)
	}
	all := members(t, h.Leader)
	_ = cmd.Process.Kill()
	gone(t, all)
}

// readable copies a program to a directory where every user can run it. It uses cp, because a file
// that this process writes may be inherited by a child that another test starts. The program could
// then not be run (ETXTBSY).
func readable(t *testing.T, program string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pawl-readable-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	copied := filepath.Join(dir, "program")
	if out, err := exec.Command("cp", program, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, path := range []string{dir, copied} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return copied
}

// Without a server, the error says in one line how to install one.
func TestRabbitMQ_MissingServer(t *testing.T) {
	t.Setenv("PAWL_RABBITMQ_SERVER", "/nowhere/rabbitmq-server")
	_, err := RabbitMQ(t.Context(), Options{})
	if err == nil || !strings.Contains(err.Error(), "/nowhere/rabbitmq-server") || !strings.Contains(err.Error(), "PAWL_RABBITMQ_SERVER") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	_, err = lookRabbit("", nil, "")
	if err == nil || !strings.Contains(err.Error(), "install the package rabbitmq-server") || !strings.Contains(err.Error(), "PAWL_RABBITMQ_SERVER") {
		t.Errorf("got %v", err)
	}
}

// members returns the processes of a group with their arguments.
func members(t *testing.T, group int) map[int]string {
	t.Helper()
	out, err := exec.Command("ps", "-ww", "-eo", "pid=,pgid=,stat=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) > 3 && f[1] == strconv.Itoa(group) && !strings.HasPrefix(f[2], "Z") {
			pid, _ := strconv.Atoi(f[0])
			all[pid] = strings.Join(f[3:], " ")
		}
	}
	return all
}

// gone waits until processes have ended.
func gone(t *testing.T, all map[int]string) {
	t.Helper()
	if len(all) == 0 {
		t.Fatal("there was no process to wait for")
	}
	for pid, args := range all {
		for end := time.Now().Add(soon); running(pid); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("process %d is left: %s", pid, args)
				break
			}
		}
	}
}

// running reports whether a process runs. A zombie does not.
func running(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}
