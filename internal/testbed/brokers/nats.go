package brokers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// natsVersion is the version of the Go module that is built if no server is installed.
const natsVersion = "v2.15.2"

// natsLeast is the oldest server that is used from the PATH. Version 2.9 drops expired pull
// requests without a response. It also delivers a message twice if a pull request is cancelled
// while the message is on its way.
var natsLeast = [2]int{2, 10}

// NATS starts a NATS server with JetStream. It uses the binary in PAWL_NATS_SERVER, else
// nats-server on the PATH if that is 2.10 or newer. Otherwise it builds one from its Go module,
// once per version. If the build fails, it uses an older one on the PATH.
func NATS(ctx context.Context, o Options) (*Server, error) {
	binary, err := natsServer(ctx, o)
	if err != nil {
		return nil, err
	}
	return start(ctx, program{
		name: "nats", limit: time.Minute,
		prepare: func(context.Context, *Server) error { return nil },
		command: func(s *Server) *exec.Cmd {
			return exec.Command(binary, "-a", "127.0.0.1", "-p", strconv.Itoa(s.port), "-js", "-sd", filepath.Join(s.dir, "data"))
		},
		ready: natsGreets,
	}, o)
}

// natsGreets waits for the INFO line that a server sends to each client.
func natsGreets(ctx context.Context, s *Server) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(time.Second)) // callers retry if the server hangs
	var head [5]byte
	if _, err := conn.Read(head[:]); err != nil {
		return err
	}
	if !bytes.HasPrefix(head[:], []byte("INFO")) {
		return fmt.Errorf("%s is not a NATS server: it greets with %q", s.Addr(), head)
	}
	return nil
}

func natsServer(ctx context.Context, o Options) (string, error) {
	if named := os.Getenv("PAWL_NATS_SERVER"); named != "" {
		return named, nil
	}
	installed, err := exec.LookPath("nats-server")
	if err == nil && natsIsNew(ctx, installed) {
		return installed, nil
	}
	built, buildErr := buildNATS(ctx, o)
	switch {
	case buildErr == nil:
		return built, nil
	case err == nil && ctx.Err() == nil:
		o.say("using the old " + installed + ", because a new one cannot be built")
		return installed, nil
	}
	return "", buildErr
}

// natsIsNew reports whether a binary's version is natsLeast or newer.
func natsIsNew(ctx context.Context, binary string) bool {
	out, err := exec.CommandContext(ctx, binary, "--version").Output() // nats-server: v2.15.2
	_, version, found := strings.Cut(string(out), ": v")
	var major, minor int
	if _, scanned := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil || !found || scanned != nil {
		return false
	}
	return major > natsLeast[0] || major == natsLeast[0] && minor >= natsLeast[1]
}

func buildNATS(ctx context.Context, o Options) (string, error) {
	return cached("nats-"+natsVersion, "nats-server", func(fresh string) error {
		o.say("no new nats-server on the PATH: building " + natsVersion + " from its module, once")
		cmd := exec.CommandContext(ctx, "go", "install", "github.com/nats-io/nats-server/v2@"+natsVersion)
		cmd.Env = append(os.Environ(), "GOBIN="+fresh, "GOFLAGS=-trimpath", "GOWORK=off")
		cmd.Dir = fresh
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nats: no nats-server on the PATH, and it cannot be built: install the package nats-server, or name one in "+
				"PAWL_NATS_SERVER: %w\n%s", err, bytes.TrimSpace(out))
		}
		return nil
	})
}
