//go:build proof

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The README's three commands, run as written, start a consumer from an empty directory. Its fourth
// command sends an order.
func TestReadme_ThreeCommandsToARunningConsumer(t *testing.T) {
	commands := commandsBelow(t, "../../../README.md", "## From an empty directory to a running consumer")
	if len(commands) != 4 {
		t.Fatalf("the README has %d commands there: %q", len(commands), commands)
	}
	bin, dir, address := t.TempDir(), filepath.Join(t.TempDir(), "orders"), free(t)
	must(t, os.Mkdir(dir, 0o755))
	r := *ours
	r.env = append(slices.Clone(r.env), "GOBIN="+bin, "PATH="+bin+":"+os.Getenv("PATH"), "LISTEN="+address, "PWD="+dir)
	do(t, &r, dir, "sh", "-ec", commands[0])
	do(t, &r, dir, "sh", "-ec", commands[1])

	consumer := exec.Command("sh", "-ec", commands[2])
	var said bytes.Buffer
	consumer.Dir, consumer.Env, consumer.Stdout, consumer.Stderr = dir, r.env, &said, &said
	// A shell may run between this process and pawl.
	consumer.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, consumer.Start())
	ended := make(chan error, 1)
	go func() { ended <- consumer.Wait() }()
	stop := func() { _ = syscall.Kill(-consumer.Process.Pid, syscall.SIGTERM) }
	t.Cleanup(stop)
	for deadline := time.Now().Add(3 * time.Minute); !ready(address); time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v\n%s", err, &said)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("it is not ready after three minutes")
		}
	}
	send := strings.ReplaceAll(commands[3], "localhost:8080", address)
	if out := do(t, &r, dir, "sh", "-ec", send); strings.Count(out, "200") != 3 {
		t.Errorf("three webhooks are answered %q", out)
	}
	stop()
	select {
	case <-ended: // with all its children; the shell may have died of the signal
	case <-time.After(2 * time.Minute):
		t.Fatal("it does not end")
	}
	if _, err := os.Stat(filepath.Join(dir, "pgdata", "postmaster.pid")); !errors.Is(err, fs.ErrNotExist) || ready(address) {
		t.Errorf("its server or program still runs: %v\n%s", err, &said)
	}
}

// commandsBelow returns the lines of the sh blocks under a heading, up to the next heading.
func commandsBelow(t *testing.T, page, heading string) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range strings.Split(section, "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		commands = append(commands, strings.Split(strings.TrimSpace(block), "\n")...)
	}
	return commands
}

func ready(address string) bool {
	answer, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// free returns an unused address.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().String()
}
