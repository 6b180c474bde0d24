package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// On a machine without caches, each pawl dev command refuses a bad flag before it downloads or
// starts anything.
func TestDev_ChecksFlagsFirst(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() }) // closes after the parallel cases
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	file := filepath.Join(shortDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"sqs --queue orders --queue no.dots", 2, `"no.dots" of --queue is not a queue name`},
		{"sqs --queue .fifo", 2, `".fifo" of --queue is not a queue name`},
		{"sqs --chaos much", 2, `"much" of --chaos`},
		{"postgres --dir " + file, 1, "not a directory"},
		{"postgres --dir DIR -- /no/such/program", 2, "check the command behind --"},
		{"nats --dir " + file, 1, "not a directory"},
		{"nats --dir DIR --port 70000", 2, "--port must lie between"},
		{"nats --dir DIR --port " + port, 1, "port " + port + " is taken"},
		{"nats --dir DIR -- /no/such/program", 2, "check the command behind --"},
		{"rabbitmq --dir " + file, 1, "not a directory"},
		{"rabbitmq --dir DIR --port " + port, 1, "port " + port + " is taken"},
		{"rabbitmq --dir DIR -- /no/such/program", 2, "check the command behind --"},
		{"kafka --dir " + file, 1, "not a directory"},
		{"kafka --dir DIR --port " + port, 1, "port " + port + " is taken"},
		{"kafka --dir DIR --topic orders:many", 2, `"orders:many" of --topic needs a number of partitions`},
		{"kafka --dir DIR --topic orders:0", 2, "1 to 10000"},
		{"kafka --dir DIR --topic orders:10001", 2, "1 to 10000"},
		{"kafka --dir DIR --topic orders --topic :6", 2, `":6" of --topic is not a topic name`},
		{"kafka --dir DIR --topic ..", 2, `".." of --topic is not a topic name`},
		{"kafka --dir DIR -- /no/such/program", 2, "check the command behind --"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			home := shortDir(t)
			cache := filepath.Join(home, "cache")
			cmd := command(t, "", append([]string{"dev"}, strings.Fields(strings.ReplaceAll(c.args, "DIR", filepath.Join(home, "data")))...)...)
			cmd.Env = append(cmd.Env, "HOME="+cache, "XDG_CACHE_HOME="+cache, "GOMODCACHE="+cache, "PAWL_PG_BIN=", "PAWL_NATS_SERVER=", "PAWL_KAFKA_HOME=")
			var stderr strings.Builder
			cmd.Stderr = &stderr
			_ = cmd.Run()
			wantFailure(t, result{cmd.ProcessState.ExitCode(), "", stderr.String()}, c.code, c.want)
			if fetched, err := os.ReadDir(cache); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it fetched: %v, %v", fetched, err)
			}
		})
	}
}

func TestDevNATS_Refusals(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	wantFailure(t, pawl(t, "", "dev", "nats"), 2, "--dir")
	wantFailure(t, pawl(t, "", "dev", "nats", "--dir", dir, "extra"), 2, "extra")
	wantFailure(t, pawl(t, "", "dev", "nats", "--dir", dir, "--port", "70000"), 2, "--port must lie between 1 and 65535")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	wantFailure(t, pawl(t, "", "dev", "nats", "--dir", dir, "--port", port), 1, "port "+port+" is taken", "--port")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, pawl(t, "", "dev", "nats", "--dir", file), 1, "not a directory", "--dir")
	cmd := command(t, "", "dev", "nats", "--dir", dir)
	cmd.Env = append(cmd.Env, "PAWL_NATS_SERVER="+filepath.Join(dir, "none"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	_ = cmd.Run()
	wantFailure(t, result{cmd.ProcessState.ExitCode(), "", stderr.String()}, 1, filepath.Join(dir, "none"), "--dir")
	if help := mustPawl(t, "", "dev", "nats", "--help").stdout; !strings.Contains(help, "nats consumer add ORDERS") || !strings.Contains(help, "PAWL_NATS_URL") {
		t.Error(help)
	}
}
