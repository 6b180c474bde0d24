package brokers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// Redis starts a Redis server that keeps its keys across kills in an append-only file. It uses the
// binary in PAWL_REDIS_SERVER, else redis-server on the PATH.
func Redis(ctx context.Context, o Options) (*Server, error) {
	binary := os.Getenv("PAWL_REDIS_SERVER")
	if binary == "" {
		found, err := exec.LookPath("redis-server")
		if err != nil {
			return nil, errors.New("redis: no redis-server is installed: install the package redis-server, or name one in PAWL_REDIS_SERVER")
		}
		binary = found
	}
	return start(ctx, program{
		name: "redis", limit: time.Minute,
		prepare: func(_ context.Context, s *Server) error {
			return os.WriteFile(filepath.Join(s.dir, "redis.conf"), s.configuration(map[string]string{
				"bind": "127.0.0.1", "port": strconv.Itoa(s.port), "dir": s.dir, "save": `""`, "appendonly": "yes", "appendfsync": "no",
			}, " "), 0o600)
		},
		command: func(s *Server) *exec.Cmd { return exec.Command(binary, filepath.Join(s.dir, "redis.conf")) },
		ready:   redisAnswers,
	}, o)
}

// redisAnswers sends PING. A server that loads its file answers with an error.
func redisAnswers(ctx context.Context, s *Server) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second)) // callers retry if the server hangs
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	if err == nil && !bytes.HasPrefix(answer[:n], []byte("+PONG")) {
		err = fmt.Errorf("%s does not serve yet: it answers %q", s.Addr(), answer[:n])
	}
	return err
}
