package brokers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options choose where a broker runs. The zero value is a throwaway broker on a free port, removed
// by Stop.
type Options struct {
	// Dir keeps configuration and data across starts. It is created if missing. Default: a
	// temporary directory that is removed by Stop, or soon after this program ends in any way.
	Dir string
	// Port is the port on 127.0.0.1 for clients. Default: the port of the previous start in Dir,
	// else a free one from 10,000 to 29,999. That is below the ports that the system gives to
	// clients.
	Port int
	// Settings are lines of the broker's configuration file, by name. They override ours.
	Settings map[string]string
	// Log receives a line before a slow operation such as a download. Default: none.
	Log func(line string)
}

// A Server is a running broker. Its methods may be called from many goroutines.
type Server struct {
	program program
	options Options
	dir     string
	port    int
	keep    bool // Stop does not remove dir

	dog  *watchdog
	mu   sync.Mutex
	cmd  *exec.Cmd     // nil while it is killed
	done chan struct{} // closed when cmd has ended
}

// A program describes how to run one kind of broker.
type program struct {
	name string
	// prepare writes the configuration into dir before each start.
	prepare func(ctx context.Context, s *Server) error
	// command returns the server process, which runs until it is killed. Its arguments contain dir,
	// by which the watchdog recognises it. All its children must stay in its process group.
	command func(s *Server) *exec.Cmd
	// ready returns nil once the broker serves clients.
	ready func(ctx context.Context, s *Server) error
	// limit bounds the duration of one start.
	limit time.Duration
	// log is the file under dir in which the broker reports why it did not start.
	log string
}

// start starts a broker and returns when it serves clients. ctx bounds only the start.
func start(ctx context.Context, p program, o Options) (_ *Server, err error) {
	s := &Server{program: p, options: o, keep: o.Dir != ""}
	if s.dir, err = o.takeDir(p.name); err != nil {
		return nil, err
	}
	if s.port = o.Port; s.port <= 0 {
		ports, err := s.keptPorts("pawl.port", 1)
		if err != nil {
			return nil, err
		}
		s.port = ports[0]
	}
	if s.dog, err = startWatchdog(s.dir, s.keep); err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (o Options) say(line string) {
	if o.Log != nil {
		o.Log(line)
	}
}

func (o Options) takeDir(name string) (string, error) {
	if o.Dir == "" {
		return os.MkdirTemp("", "pawl-"+name+"-")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o700)
}

// keptPorts returns n ports that it stores in a file of the broker's directory at the first call.
func (s *Server) keptPorts(name string, n int) (ports []int, err error) {
	file := filepath.Join(s.dir, name)
	text, _ := os.ReadFile(file) // absent before the first start
	for _, word := range strings.Fields(string(text)) {
		if port, err := strconv.Atoi(word); err == nil {
			ports = append(ports, port)
		}
	}
	if len(ports) == n {
		return ports, nil
	}
	ports = make([]int, n)
	for i := range ports {
		if ports[i], err = FreePort(); err != nil {
			return nil, err
		}
	}
	return ports, os.WriteFile(file, []byte(strings.Trim(fmt.Sprint(ports), "[]")), 0o600)
}

// configuration returns a file of settings, which Options.Settings override, one a line.
func (s *Server) configuration(settings map[string]string, equals string) []byte {
	maps.Copy(settings, s.options.Settings)
	var text []byte
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		text = fmt.Appendf(text, "%s%s%s\n", name, equals, settings[name])
	}
	return text
}

// reserved holds the sockets that reserve the ports of FreePort. They stay open until the process
// ends.
var reserved struct {
	sync.Mutex
	sockets []net.PacketConn
}

// FreePort finds a port of 127.0.0.1 on which nothing listens, and reserves it for this process. A
// broker that is killed and started again gets it back. The system gives no such port to a client,
// and FreePort gives it to no other broker in any process. Otherwise two brokers that start at once
// could choose the same port, and the second would be mistaken for the first.
//
// The reservation is a UDP socket with the same number. The system closes it when the process ends.
func FreePort() (int, error) {
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		address := "127.0.0.1:" + strconv.Itoa(port)
		reservation, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			reserved.Lock()
			defer reserved.Unlock()
			reserved.sockets = append(reserved.sockets, reservation)
			return port, l.Close()
		}
		_ = reservation.Close()
	}
	return 0, errors.New("no free port between 10000 and 29999 on 127.0.0.1")
}

// Addr is where clients connect, as in 127.0.0.1:19092.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// Port is the port of Addr.
func (s *Server) Port() int { return s.port }

// Dir is the directory with configuration, data and log.
func (s *Server) Dir() string { return s.dir }

// Done returns a channel that is closed when the broker has ended. Start replaces the channel.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// Start starts a killed broker on the same port and data. It returns when the broker serves
// clients.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		return fmt.Errorf("%s: it runs already", s.program.name)
	}
	ctx, cancel := context.WithTimeout(ctx, s.program.limit)
	defer cancel()
	if err := AwaitFree(ctx, s.port); err != nil {
		return fmt.Errorf("%s: %w", s.program.name, err)
	}
	if err := s.program.prepare(ctx, s); err != nil {
		return fmt.Errorf("%s: %w", s.program.name, err)
	}
	if err := s.launch(); err != nil {
		return fmt.Errorf("%s: %w", s.program.name, err)
	}
	for {
		err := s.program.ready(ctx, s)
		select {
		case <-s.done: // our process has ended: another broker on the port answered
			s.cmd = nil
			return fmt.Errorf("%s: it ended while starting\n%s", s.program.name, s.tail())
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
		case <-ctx.Done():
			return fmt.Errorf("%s: it does not answer: %w: %w\n%s", s.program.name, ctx.Err(), err, s.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// portLimit is how long AwaitFree waits. The broker of a program that was killed just now releases
// the port soon.
const portLimit = 5 * time.Second

// AwaitFree waits at most 5 s until nothing listens on a port of 127.0.0.1. Another program on that
// port would be mistaken for the broker.
func AwaitFree(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, portLimit)
	defer cancel()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			return l.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("port %d is taken: %w", port, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Server) launch() error {
	// Not our stdout: go test would wait until the broker closes it.
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.program.command(s)
	if cmd.Err != nil {
		return cmd.Err
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	s.cmd, s.done = cmd, done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	return s.dog.guard(cmd.Process.Pid)
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "pawl.log") }

// tail returns the last lines of the broker's logs.
func (s *Server) tail() string {
	var all []string
	for _, file := range []string{s.logFile(), filepath.Join(s.dir, s.program.log)} {
		text, _ := os.ReadFile(file) // absent if the broker wrote nothing
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		all = append(all, lines[max(0, len(lines)-15):]...)
	}
	return strings.Join(slices.Compact(all), "\n")
}

// Kill ends the broker with SIGKILL, as a crash does, and returns when it has ended. Start starts
// it again.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signal(syscall.SIGKILL)
	if s.cmd != nil {
		<-s.done
		s.cmd = nil
	}
}

// Freeze stops all processes of the broker with SIGSTOP, and returns when their threads are
// stopped. Wake continues them.
func (s *Server) Freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signal(syscall.SIGSTOP)
	for end := time.Now().Add(stopLimit); s.cmd != nil && moves(s.cmd.Process.Pid) && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // the signal reaches the threads one after another
	}
}

// Wake continues a frozen broker.
func (s *Server) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signal(syscall.SIGCONT)
}

// signal sends sig to the broker's process group.
func (s *Server) signal(sig syscall.Signal) {
	if s.cmd != nil {
		_ = syscall.Kill(-s.cmd.Process.Pid, sig)
	}
}

// stopLimit is how long Stop waits after SIGTERM.
const stopLimit = 30 * time.Second

// Stop ends the broker. If Dir is kept, the broker shuts down by SIGTERM first. Otherwise Stop
// kills it and removes the directory.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		if s.keep {
			s.signal(syscall.SIGTERM)
			select {
			case <-s.done:
			case <-time.After(stopLimit):
			}
		}
		s.signal(syscall.SIGKILL)
		<-s.done
		s.cmd = nil
	}
	s.dog.dismiss()
	if s.keep {
		return nil
	}
	return os.RemoveAll(s.dir)
}
