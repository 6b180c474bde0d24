package brokers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kafkaCluster is the cluster id of every broker. Each cluster has its own data and ports, so they
// never connect to each other.
const kafkaCluster = "MkU3OEVBNTcwNTJENDM1Tk"

// Kafka starts an Apache Kafka broker that is its own controller (KRaft). It uses the jars in
// PAWL_KAFKA_HOME, else it fetches them with Maven once per version. Java comes from JAVA_HOME or
// the PATH.
func Kafka(ctx context.Context, o Options) (*Server, error) {
	all, err := KafkaCluster(ctx, 1, o)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// KafkaCluster starts the n brokers of one cluster. Each is a process of its own and also a
// controller. With three brokers, any two can serve. Internal topics have a replica on each broker,
// up to three, and a write needs one replica less.
//
// If n is above 1, Options.Port is ignored. Each broker has a directory under Options.Dir.
func KafkaCluster(ctx context.Context, n int, o Options) ([]*Server, error) {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	java, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	jars, err := kafkaJars(ctx, o)
	if err != nil {
		return nil, err
	}
	voters, err := kafkaVoters(n, o.Dir)
	if err != nil {
		return nil, err
	}
	type started struct {
		node   int
		server *Server
		err    error
	}
	results := make(chan started, n)
	for node := 1; node <= n; node++ {
		k := kafkaNode{id: node, voters: voters, java: java, jars: jars, settings: o.Settings}
		one := o
		if n > 1 {
			one.Port = 0
			if o.Dir != "" {
				one.Dir = filepath.Join(o.Dir, strconv.Itoa(node))
			}
		}
		go func() {
			s, err := start(ctx, program{name: "kafka", limit: 3 * time.Minute, prepare: k.prepare, command: k.command, ready: k.ready,
				log: "server.log"}, one)
			results <- started{node, s, err}
		}()
	}
	servers := make([]*Server, n)
	for range n {
		r := <-results
		servers[r.node-1], err = r.server, errors.Join(err, r.err)
	}
	if err != nil {
		for _, s := range servers {
			if s != nil {
				err = errors.Join(err, s.Stop())
			}
		}
		return nil, err
	}
	return servers, nil
}

// kafkaVoters chooses the ports of the controllers and stores them with the data.
func kafkaVoters(n int, dir string) ([]int, error) {
	file := filepath.Join(dir, "pawl.controllers")
	if dir != "" {
		if text, err := os.ReadFile(file); err == nil {
			return readPorts(string(text), n)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	ports := make([]int, n)
	for i := range ports {
		var err error
		if ports[i], err = FreePort(); err != nil {
			return nil, err
		}
	}
	if dir == "" {
		return ports, nil
	}
	return ports, os.WriteFile(file, []byte(strings.Trim(fmt.Sprint(ports), "[]")), 0o600)
}

func readPorts(text string, n int) ([]int, error) {
	words := strings.Fields(text)
	if len(words) != n {
		return nil, fmt.Errorf("kafka: the directory holds a cluster of %d brokers, but %d were requested", len(words), n)
	}
	ports := make([]int, n)
	for i, w := range words {
		var err error
		if ports[i], err = strconv.Atoi(w); err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
	}
	return ports, nil
}

// A kafkaNode is one broker of a cluster.
type kafkaNode struct {
	id       int
	voters   []int // ports of the controllers, in the order of their ids
	java     string
	jars     string // a class path
	settings map[string]string
}

// prepare writes the configuration, and formats the data directory before the first start.
func (k kafkaNode) prepare(ctx context.Context, s *Server) error {
	data := filepath.Join(s.dir, "data")
	all := k.defaults(s.port, data)
	maps.Copy(all, k.settings)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s=%s\n", name, all[name])
	}
	if err := os.WriteFile(k.file(s, "kafka.conf"), []byte(text.String()), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(k.file(s, "log4j2.properties"), []byte(kafkaLogging), 0o600); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(data, "meta.properties")); err == nil {
		return nil
	}
	cmd := exec.CommandContext(ctx, k.java, append(k.flags(s), "kafka.tools.StorageTool", "format", "-t", kafkaCluster, "-c", k.file(s, "kafka.conf"))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("its data directory cannot be formatted: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (k kafkaNode) file(s *Server, name string) string { return filepath.Join(s.dir, name) }

// defaults returns settings for a broker that starts fast, uses little memory and deletes nothing
// during a test.
func (k kafkaNode) defaults(port int, data string) map[string]string {
	voters := make([]string, len(k.voters))
	for i, p := range k.voters {
		voters[i] = fmt.Sprintf("%d@127.0.0.1:%d", i+1, p)
	}
	copies := min(len(k.voters), 3)
	return map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        strconv.Itoa(k.id),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"listeners":                      fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", port, k.voters[k.id-1]),
		"controller.listener.names":      "CONTROLLER",
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                       data,

		"default.replication.factor":                       strconv.Itoa(copies),
		"min.insync.replicas":                              strconv.Itoa(max(1, copies-1)),
		"offsets.topic.replication.factor":                 strconv.Itoa(copies),
		"offsets.topic.num.partitions":                     "4",
		"transaction.state.log.replication.factor":         strconv.Itoa(copies),
		"transaction.state.log.min.isr":                    strconv.Itoa(max(1, copies-1)),
		"transaction.state.log.num.partitions":             "4",
		"share.coordinator.state.topic.replication.factor": strconv.Itoa(copies),
		"share.coordinator.state.topic.min.isr":            strconv.Itoa(max(1, copies-1)),

		"group.initial.rebalance.delay.ms":         "0",
		"group.min.session.timeout.ms":             "1000",
		"group.consumer.min.session.timeout.ms":    "1000",
		"group.consumer.min.heartbeat.interval.ms": "100",
		"group.consumer.session.timeout.ms":        "4000", // KIP-848: the broker sets it
		"group.consumer.heartbeat.interval.ms":     "500",
		"auto.create.topics.enable":                "false",
		// After a kill, the controller waits this long before it accepts the broker again.
		"broker.session.timeout.ms":      "4000",
		"broker.heartbeat.interval.ms":   "500",
		"num.network.threads":            "2",
		"num.io.threads":                 "4",
		"log.cleaner.dedupe.buffer.size": "4194304",
		"log.segment.bytes":              "67108864",
	}
}

// kafkaLogging sends warnings to a file that Server.tail reads.
const kafkaLogging = `rootLogger.level=warn
rootLogger.appenderRefs=file
rootLogger.appenderRef.file.ref=file
appender.file.type=File
appender.file.name=file
appender.file.fileName=${sys:pawl.log}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %m (%c)%n%throwable{short}
`

// flags keep the memory of Java small. The second compiler costs more than it saves during a test.
func (k kafkaNode) flags(s *Server) []string {
	return []string{"-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dlog4j2.configurationFile=" + k.file(s, "log4j2.properties"), "-Dpawl.log=" + k.file(s, "server.log"), "-cp", k.jars}
}

func (k kafkaNode) command(s *Server) *exec.Cmd {
	return exec.Command(k.java, append(k.flags(s), "kafka.Kafka", k.file(s, "kafka.conf"))...)
}

// ready returns an error until the broker itself is in the metadata that clients get.
func (k kafkaNode) ready(ctx context.Context, s *Server) error {
	known, err := kafkaBrokers(ctx, s.Addr())
	if err != nil {
		return err
	}
	if !slices.Contains(known, k.id) {
		return fmt.Errorf("broker %d is not among the brokers %v", k.id, known)
	}
	return nil
}

// kafkaBrokers sends a Metadata request without a topic and returns the broker ids of the response.
func kafkaBrokers(ctx context.Context, addr string) ([]int, error) {
	answer, err := kafkaMetadata(ctx, addr, "")
	if err != nil {
		return nil, err
	}
	return answer.brokers, nil
}
