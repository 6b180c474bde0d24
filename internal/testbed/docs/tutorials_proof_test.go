//go:build proof

package docs_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/internal/testbed/patience"
)

var (
	consoleFence = regexp.MustCompile("(?ms)^```console ?(\\w*)\n(.*?)^```$")
	portNamed    = regexp.MustCompile(`\b(localhost|127\.0\.0\.1):(\d+)`)
	// killed is the line of a shell whose program was killed. An interactive shell prints another.
	killed = regexp.MustCompile(`(?m)^bash: line \d+: +\d+ (Killed|Terminated) .*\n`)
	// asks matches commands that change nothing. They are repeated until they print what the page
	// shows, because a test reads faster than a person.
	asks = regexp.MustCompile(`^(psql .*['"]select |pawl (status|explain|doctor|(dlq|jobs|steps|outbox|inbox) (list|show|lag))|curl -s [^ ]+$)`)
)

// Each tutorial is run as written, in a copy of the repository, each in shells of its own. Its
// commands print what the page shows. Only the ports are others.
func TestTutorials_RunAsWritten(t *testing.T) {
	pages := slices.DeleteFunc(files(t, ".md"), func(page string) bool { return !strings.HasPrefix(page, "docs/tutorials/") })
	for _, page := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			newReader(t).follow(read(t, page))
		})
	}
	if len(pages) != 6 {
		t.Errorf("there are six tasks and %d tutorials", len(pages))
	}
}

// A reader follows a page in a clone of the repository.
type reader struct {
	*testing.T
	dir    string
	ports  map[string]int    // of the page, and the free one in its place
	shells map[string]*shell // by the second word of the fence
}

func newReader(t *testing.T) *reader {
	r := &reader{t, t.TempDir(), map[string]int{}, map[string]*shell{}}
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		r.copy(name)
	}
	t.Cleanup(func() {
		for _, name := range slices.Sorted(maps.Keys(r.shells)) {
			r.shells[name].end()
		}
		for _, name := range slices.Sorted(maps.Keys(r.shells)) {
			patience.Until(t, "shell "+name+" has ended", r.shells[name].ended)
		}
	})
	return r
}

// copy copies a file of the repository. A file that was deleted and not yet committed is skipped.
func (r *reader) copy(name string) {
	r.Helper()
	from, to := filepath.Join(root, name), filepath.Join(r.dir, name)
	info, err := os.Lstat(from)
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, text, info.Mode().Perm())
	}
	if err != nil {
		r.Fatal(err)
	}
}

// follow runs the commands of a page and compares what they print.
func (r *reader) follow(page string) {
	r.Helper()
	commands := 0
	for _, block := range consoleFence.FindAllStringSubmatch(page, -1) {
		s := r.shell(block[1])
		for _, part := range strings.Split("\n"+block[2], "\n$ ")[1:] {
			command, shown, _ := strings.Cut(r.ported(strings.TrimRight(part, "\n")), "\n")
			commands++
			if block[1] == "" {
				r.answered(s, command, shown)
			} else {
				r.serving(s, command, shown)
			}
		}
	}
	if commands < 8 {
		r.Errorf("the page has only %d commands", commands)
	}
}

// ported replaces the ports of the page by free ones.
func (r *reader) ported(text string) string {
	return portNamed.ReplaceAllStringFunc(text, func(address string) string {
		host, port, _ := strings.Cut(address, ":")
		if r.ports[port] == 0 {
			free, err := brokers.FreePort()
			if err != nil {
				r.Fatal(err)
			}
			r.ports[port] = free
		}
		return fmt.Sprintf("%s:%d", host, r.ports[port])
	})
}

// answered runs a command that ends. It must print exactly what the page shows.
func (r *reader) answered(s *shell, command, shown string) {
	r.Helper()
	want, got := pattern(shown), ""
	defer func() {
		if !want.MatchString(got) {
			r.Errorf("$ %s\n%s\nThe page shows:\n%s", command, got, shown)
		}
	}()
	try := func() bool {
		got = s.run(r.T, command)
		return want.MatchString(got)
	}
	if asks.MatchString(command) {
		// A thousand polls: each starts a program, which takes some 50 ms on a quiet machine.
		patience.Within(r, patience.Limit/18, command+" prints what the page shows", try)
	} else {
		try()
	}
}

// serving starts a command that need not end, and waits until it has printed the lines of the page,
// in their order. Other lines may stand between them.
func (r *reader) serving(s *shell, command, shown string) {
	r.Helper()
	from := s.length()
	s.say(command)
	for line := range strings.SplitSeq(shown, "\n") {
		if line == "" {
			continue
		}
		want := regexp.MustCompile(`(?m)^` + inline(line) + `$`)
		var at []int
		printed := func() bool {
			at = want.FindStringIndex(s.since(from))
			return at != nil
		}
		patience.Until(r, command+" prints "+line, printed)
		from += at[1]
	}
}

// pattern matches an output. In a line, … stands for any text. A line of only … stands for any
// lines.
func pattern(shown string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`^`)
	for line := range strings.SplitSeq(strings.TrimRight(shown, "\n"), "\n") {
		if line == "…" {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		b.WriteString(inline(line) + `\n`)
	}
	b.WriteString(`\n*$`)
	if strings.TrimSpace(shown) == "" {
		return regexp.MustCompile(`^\n*$`)
	}
	return regexp.MustCompile(b.String())
}

// inline matches one line, with columns of any width, and any blanks at its end.
func inline(line string) string {
	line = strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " ")), "…", ".*?")
	return columns.ReplaceAllString(line, "  +") + `[ \r]*`
}

var columns = regexp.MustCompile("   *")

// A shell is a bash that reads commands from a pipe, in a process group of its own.
type shell struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	life io.Closer     // while it is open, the watchdog of the process group waits
	over chan struct{} // closed when bash and all that holds its output have ended
	mu   sync.Mutex
	out  bytes.Buffer
	n    int // commands so far
}

func (s *shell) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *shell) length() int { return len(s.since(0)) }

func (s *shell) since(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()[n:]
}

func (r *reader) shell(name string) *shell {
	r.Helper()
	if s := r.shells[name]; s != nil {
		return s
	}
	s := &shell{cmd: exec.Command("bash", "--noprofile", "--norc"), over: make(chan struct{})}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		r.Fatal(err)
	}
	s.in, s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = in, r.dir, s, s
	s.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PAWL_DATABASE_URL=") || strings.HasPrefix(v, "DATABASE_URL=") || strings.HasPrefix(v, "AWS_")
	}), "PWD="+r.dir, "GOFLAGS=-trimpath", "LC_ALL=C.UTF-8", "PAGER=cat", "PSQLRC=/dev/null")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	s.life = r.watched(s.cmd.Process.Pid)
	go func() {
		_ = s.cmd.Wait() // its status is that of the last command
		close(s.over)
	}()
	r.shells[name] = s
	return s
}

func (s *shell) say(line string) { _, _ = io.WriteString(s.in, line+"\n") }

// run runs a command that ends, and returns what it printed.
func (s *shell) run(t *testing.T, command string) string {
	t.Helper()
	s.n++
	from, mark := s.length(), fmt.Sprintf("-- end of %d --\n", s.n)
	s.say(command)
	s.say("echo '" + strings.TrimSpace(mark) + "'")
	// The shell may print that a process was killed behind the mark.
	patience.Until(t, command+" has ended", func() bool { return strings.Contains(s.since(from), mark) || s.ended() })
	return killed.ReplaceAllString(strings.Replace(s.since(from), mark, "", 1), "")
}

// end ends the shell and its programs. The same happens if the test is killed.
func (s *shell) end() {
	_ = s.in.Close()
	_ = s.life.Close()
}

// watched starts the watchdog of a process group. It sends SIGTERM and not SIGINT, as Ctrl-C does,
// because programs ignore SIGINT if the test was started in the background.
func (r *reader) watched(group int) io.Closer {
	r.Helper()
	dog := exec.Command("bash", "-c", fmt.Sprintf("read -r; kill -TERM -%d 2>/dev/null", group))
	dog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	life, err := dog.StdinPipe()
	if err == nil {
		err = dog.Start()
	}
	if err != nil {
		r.Fatal(err)
	}
	go func() { _ = dog.Wait() }() // the group may have ended
	return life
}

func (s *shell) ended() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}
