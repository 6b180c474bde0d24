//go:build proof

package browsertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/incident"
)

var (
	binary string // the pawl command that serves the dashboard
	axe    string // the source of the accessibility checker
)

func TestMain(m *testing.M) {
	incident.Main()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	program, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v: run npm ci --prefix internal/testbed/browsertest\n", err)
		return 1
	}
	axe = string(program)
	dir, err := os.MkdirTemp("", "pawl-browser-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "pawl")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/pawl-go/pawl/cmd/pawl").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	stop, err := startChromium(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	return m.Run()
}

// A process is a pawl command that serves pages.
type process struct {
	*testing.T
	out  *bufio.Reader
	said bytes.Buffer // on stderr
}

// start starts a process and stops it when the test ends.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{T: t}
	cmd.Stderr = &p.said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	return p
}

// addresses parses the first line of output: the login URL, which admits one browser, and the URL
// of the first page.
func (p *process) addresses() (login, root string) {
	p.Helper()
	line, err := p.out.ReadBytes('\n')
	var running struct{ URL, Login string }
	if err == nil {
		err = json.Unmarshal(line, &running)
	}
	if err != nil {
		p.Fatalf("%v: %s %s", err, line, p.said.String())
	}
	return running.Login, running.URL
}

// rest returns the output until the process ends.
func (p *process) rest() []byte {
	p.Helper()
	text, err := io.ReadAll(p.out)
	if err != nil {
		p.Fatal(err)
	}
	return text
}

// serve runs pawl dashboard on a database.
func serve(t *testing.T, database string, flags ...string) (login, root string) {
	t.Helper()
	return start(t, exec.Command(binary, append([]string{"dashboard", "--database-url", database, "--listen", "127.0.0.1:0", "--actor", "ann", "--json"}, flags...)...)).addresses()
}
