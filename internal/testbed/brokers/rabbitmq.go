package brokers

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rabbitServers are the paths of packaged servers. The PATH comes last, because Debian's
// rabbitmq-server there is a script that only root may run.
var rabbitServers = []string{"/usr/lib/rabbitmq/bin/rabbitmq-server", "/opt/homebrew/opt/rabbitmq/sbin/rabbitmq-server",
	"/usr/local/opt/rabbitmq/sbin/rabbitmq-server", "/usr/local/sbin/rabbitmq-server"}

// ManagementPort is the key in Options.Settings that enables the management plugin. Its HTTP API
// listens on that port of 127.0.0.1.
const ManagementPort = "management.tcp.port"

// RabbitMQ starts a RabbitMQ server with the user guest, password guest, and all queues in Dir. It
// uses the script in PAWL_RABBITMQ_SERVER, else that of an installed package. A first start takes
// 10 s to 20 s. All ports listen on 127.0.0.1 only, and the server has its own Erlang port mapper.
//
// Options.Settings are lines of rabbitmq.conf. [ManagementPort] among them enables the management
// plugin.
func RabbitMQ(ctx context.Context, o Options) (*Server, error) {
	binary, err := rabbitServer()
	if err != nil {
		return nil, err
	}
	return start(ctx, program{
		name: "rabbitmq", limit: 2 * time.Minute,
		prepare: prepareRabbit,
		command: func(s *Server) *exec.Cmd { return rabbitCommand(s, binary) },
		ready:   rabbitGreets,
		log:     filepath.Join("log", "rabbit.log"),
	}, o)
}

func rabbitServer() (string, error) {
	return lookRabbit(os.Getenv("PAWL_RABBITMQ_SERVER"), rabbitServers, "rabbitmq-server")
}

// lookRabbit returns the named script, else an installed one, else the one on the PATH.
func lookRabbit(named string, installed []string, onPath string) (string, error) {
	if named != "" {
		if _, err := os.Stat(named); err != nil {
			return "", fmt.Errorf("rabbitmq: the server that PAWL_RABBITMQ_SERVER names: %w", err)
		}
		return named, nil
	}
	for _, path := range installed {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	if found, err := exec.LookPath(onPath); err == nil {
		return found, nil
	}
	return "", errors.New("rabbitmq: no rabbitmq-server is installed: install the package rabbitmq-server, or name one in PAWL_RABBITMQ_SERVER")
}

// rabbitScript keeps the port mapper and the server in its process group, and kills the group when
// the server ends. Otherwise Erlang starts a port mapper as a daemon on port 4369 that is never
// stopped. $1 is the directory, by which the watchdog recognises the process.
const rabbitScript = `
trap : TERM INT
epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 -relaxed_command_check &
detached=yes "$0" &
server=$!
while kill -0 "$server" 2>/dev/null; do wait "$server"; done
kill -KILL 0
`

func rabbitCommand(s *Server, binary string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", rabbitScript, binary, s.dir)
	ports, err := s.rabbitPorts()
	if err != nil {
		return &exec.Cmd{Err: err}
	}
	in := func(name string) string { return filepath.Join(s.dir, name) }
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "RABBITMQ_") || strings.HasPrefix(v, "ERL_") || strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "NOTIFY_SOCKET=")
	}),
		"HOME="+in("home"),
		"PATH="+os.Getenv("PATH")+":/usr/local/bin:/usr/bin:/bin",
		"ERL_EPMD_PORT="+strconv.Itoa(ports[0]),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_CRASH_DUMP_SECONDS=0",
		"RABBITMQ_NODENAME=pawl-"+strconv.Itoa(s.port)+"@localhost",
		"RABBITMQ_DIST_PORT="+strconv.Itoa(ports[1]),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONF_ENV_FILE="+in("env.conf"),
		"RABBITMQ_CONFIG_FILE="+in("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE="+in("advanced.config"),
		"RABBITMQ_CONFIG_FILES="+in("conf.d"),
		"RABBITMQ_GENERATED_CONFIG_DIR="+in("generated"),
		"RABBITMQ_MNESIA_BASE="+in("data"),
		"RABBITMQ_LOG_BASE="+in("log"),
		"RABBITMQ_LOGS="+in("log/rabbit.log"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+in("plugins"),
	)
	return cmd
}

// rabbitPorts returns the ports of the port mapper and of Erlang's distribution.
func (s *Server) rabbitPorts() (ports []int, err error) { return s.keptPorts("pawl.ports", 2) }

func prepareRabbit(ctx context.Context, s *Server) error {
	for _, dir := range []string{"home", "conf.d", "generated", "data", "log"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o700); err != nil {
			return err
		}
	}
	ports, err := s.rabbitPorts()
	if err != nil {
		return err
	}
	plugins := "[]."
	if s.options.Settings[ManagementPort] != "" {
		plugins = "[rabbitmq_management]."
	}
	files := map[string]string{"rabbitmq.conf": string(s.rabbitConf()), "advanced.config": rabbitAdvanced, "env.conf": "", "plugins": plugins + "\n"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := writeCookie(filepath.Join(s.dir, "home", ".erlang.cookie")); err != nil {
		return err
	}
	for _, port := range ports {
		if err := AwaitFree(ctx, port); err != nil {
			return err
		}
	}
	return nil
}

// writeCookie writes the secret with which Erlang nodes authenticate. A local user who guesses it
// can run programs as the broker's user, so each start has a new one.
func writeCookie(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Erlang refuses a file that others can read.
	return os.WriteFile(file, []byte(rand.Text()), 0o400)
}

// rabbitAdvanced makes quorum queues report their lengths every second instead of every five
// seconds.
const rabbitAdvanced = "[{rabbit, [{quorum_tick_interval, 1000}]}].\n"

// rabbitConf returns our configuration, overridden by Options.Settings.
func (s *Server) rabbitConf() []byte {
	lines := map[string]string{
		"listeners.tcp.1":                   "127.0.0.1:" + strconv.Itoa(s.port),
		"loopback_users.guest":              "true",
		"vm_memory_high_watermark.absolute": "512MiB",
		"disk_free_limit.absolute":          "50MB",
		"log.file.level":                    "info",
		"log.console":                       "false",
		// For quorum queues, which keep the WAL in memory until it is flushed.
		"raft.wal_max_size_bytes": "33554432",
	}
	if s.options.Settings[ManagementPort] != "" {
		lines["management.tcp.ip"], lines["collect_statistics_interval"] = "127.0.0.1", "1000"
	}
	return s.configuration(lines, " = ")
}

// rabbitGreets opens the protocol: the server answers with the frame Connection.Start.
func rabbitGreets(ctx context.Context, s *Server) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second)) // callers retry if the server hangs
	if _, err := conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return err
	}
	var head [7]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	if head[0] != 1 { // a method frame
		return fmt.Errorf("%s is not a RabbitMQ server: it greets with %q", s.Addr(), head)
	}
	return nil
}

// AwaitQuorumQueue waits until RabbitMQ has stored that a quorum queue of the virtual host /
// exists. RabbitMQ 3.10 stores it half a second after the declaration. If the broker is killed
// before, the queue loses its log with confirmed messages, and never has a leader again.
func AwaitQuorumQueue(ctx context.Context, s *Server, queue string) error {
	atom := "%2F_" + queue
	// Erlang's encoding with its length, because another queue may begin with the same letters
	atom = string(rune(len(atom))) + atom
	for {
		files, err := filepath.Glob(filepath.Join(s.dir, "data", "*", "quorum", "*", "names.dets"))
		if err != nil {
			return err
		}
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(atom)) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("rabbitmq: the queue %q is not written down: %w", queue, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
