package brokers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	java, err := findJava(ctx, "kafka")
	if err != nil {
		return nil, err
	}
	jars, err := kafkaJars(ctx, o)
	if err != nil {
		return nil, err
	}
	k := kafka{java: java, jars: jars}
	return start(ctx, program{name: "kafka", limit: 3 * time.Minute, prepare: k.prepare, command: k.command, ready: kafkaAnswers, log: "server.log"}, o)
}

// kafkaVersion is the Kafka that is fetched if none is installed.
const kafkaVersion = "4.3.1"

// kafkaJars returns a class path that contains the broker.
func kafkaJars(ctx context.Context, o Options) (string, error) {
	if home := os.Getenv("PAWL_KAFKA_HOME"); home != "" {
		libs := filepath.Join(home, "libs")
		if _, err := os.Stat(libs); err != nil {
			return "", fmt.Errorf("kafka: PAWL_KAFKA_HOME must be the directory of an unpacked Kafka that contains libs: %w", err)
		}
		return filepath.Join(libs, "*"), nil
	}
	// Without log4j-slf4j-impl, which Kafka does not require, a failed start gives no reason.
	return mavenProgram{name: "kafka", version: kafkaVersion, megabytes: 44, otherwise: ", or unpack Kafka " + kafkaVersion + " and set PAWL_KAFKA_HOME to its directory",
		artifacts: []string{"org.apache.kafka:kafka_2.13:" + kafkaVersion, "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"}}.jars(ctx, o)
}

// kafka is what runs a broker.
type kafka struct {
	java string
	jars string // a class path
}

// prepare writes the configuration, and formats the data directory before the first start.
func (k kafka) prepare(ctx context.Context, s *Server) error {
	data := filepath.Join(s.dir, "data")
	controller, err := s.keptPorts("pawl.controllers", 1)
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.file(s, "kafka.conf"), s.configuration(kafkaDefaults(s.port, controller[0], data), "="), 0o600); err != nil {
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

func (k kafka) file(s *Server, name string) string { return filepath.Join(s.dir, name) }

// kafkaDefaults returns settings for a broker that starts fast, uses little memory and deletes
// nothing during a test.
func kafkaDefaults(port, controller int, data string) map[string]string {
	return map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        "1",
		"controller.quorum.voters":       fmt.Sprintf("1@127.0.0.1:%d", controller),
		"listeners":                      fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", port, controller),
		"controller.listener.names":      "CONTROLLER",
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                       data,

		"offsets.topic.replication.factor":                 "1",
		"offsets.topic.num.partitions":                     "4",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "4",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",

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
func (k kafka) flags(s *Server) []string {
	return []string{"-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dlog4j2.configurationFile=" + k.file(s, "log4j2.properties"), "-Dpawl.log=" + k.file(s, "server.log"), "-cp", k.jars}
}

func (k kafka) command(s *Server) *exec.Cmd {
	return exec.Command(k.java, append(k.flags(s), "kafka.Kafka", k.file(s, "kafka.conf"))...)
}
