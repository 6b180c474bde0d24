package brokers

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The versions of the SQS emulators. They keep messages in memory, so Kill loses them. None
// authenticates.
const (
	ElasticMQVersion  = "1.7.1"
	MotoVersion       = "5.2.5"
	LocalStackVersion = "2026.3.0"
)

//go:embed python/moto.txt
var motoPackages string

//go:embed python/localstack.txt
var localStackPackages string

// Moto starts moto's SQS, a Python server from PyPI. Options.Settings are variables of its
// environment.
func Moto(ctx context.Context, o Options) (*Server, error) {
	return startPython(ctx, o, pythonProgram{name: "moto", version: MotoVersion, oldest: 11, packages: motoPackages, megabytes: 140},
		"import sys; from moto.server import main; main(sys.argv[2:])", func(*Server) []string { return nil })
}

// LocalStack starts the SQS of LocalStack's community edition from PyPI, without a token.
// Options.Settings are variables of its environment.
func LocalStack(ctx context.Context, o Options) (*Server, error) {
	return startPython(ctx, o, pythonProgram{name: "localstack", version: LocalStackVersion, oldest: 12, packages: localStackPackages, megabytes: 260},
		// It ignores the address of GATEWAY_LISTEN and listens on all of the machine's.
		"import functools; from twisted.internet import endpoints as e; e.TCP4ServerEndpoint = functools.partial(e.TCP4ServerEndpoint, interface='127.0.0.1'); "+
			"from localstack.runtime.main import main; main()", func(s *Server) []string {
			return []string{"GATEWAY_LISTEN=" + s.Addr(), "SERVICES=sqs", "HOME=" + s.dir, "FILESYSTEM_ROOT=" + s.dir, "DISABLE_EVENTS=1", "SKIP_SSL_CERT_DOWNLOAD=1",
				"DNS_ADDRESS=0",
				// In a container it would write to /var/lib, where parallel instances collide.
				"OVERRIDE_IN_DOCKER=0"}
		})
}

// startPython runs a line of Python. Its first argument is the directory, by which the watchdog
// recognises it. Address and port follow.
func startPython(ctx context.Context, o Options, p pythonProgram, line string, environment func(*Server) []string) (*Server, error) {
	python, err := p.python(ctx, o)
	if err != nil {
		return nil, err
	}
	return start(ctx, program{
		name: p.name, limit: 4 * time.Minute,
		prepare: func(context.Context, *Server) error { return nil },
		command: func(s *Server) *exec.Cmd {
			cmd := exec.Command(python, "-c", line, s.dir, "-H", "127.0.0.1", "-p", strconv.Itoa(s.port))
			cmd.Env = append(os.Environ(), environment(s)...)
			for _, name := range slices.Sorted(maps.Keys(o.Settings)) {
				cmd.Env = append(cmd.Env, name+"="+o.Settings[name])
			}
			return cmd
		},
		ready: sqsResponds,
	}, o)
}

// ElasticMQ starts ElasticMQ. Its jars are fetched with Maven, once per version. Java comes from
// JAVA_HOME or the PATH.
func ElasticMQ(ctx context.Context, o Options) (*Server, error) {
	java, err := findJava(ctx, "elasticmq")
	if err != nil {
		return nil, err
	}
	jars, err := mavenProgram{name: "elasticmq", version: ElasticMQVersion, megabytes: 37,
		artifacts: []string{"org.elasticmq:elasticmq-server_2.13:" + ElasticMQVersion}}.jars(ctx, o)
	if err != nil {
		return nil, err
	}
	file := func(s *Server) string { return filepath.Join(s.dir, "elasticmq.conf") }
	return start(ctx, program{
		name: "elasticmq", limit: 4 * time.Minute,
		prepare: func(_ context.Context, s *Server) error {
			settings := s.configuration(map[string]string{
				"node-address.host": `"127.0.0.1"`, "node-address.port": strconv.Itoa(s.port),
				"rest-sqs.bind-hostname": `"127.0.0.1"`, "rest-sqs.bind-port": strconv.Itoa(s.port), "rest-sqs.sqs-limits": "strict",
				"rest-stats.enabled": "false",
			}, " = ")
			return os.WriteFile(file(s), append([]byte("include classpath(\"application.conf\")\n"), settings...), 0o600)
		},
		command: func(s *Server) *exec.Cmd {
			return exec.Command(java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dconfig.file="+file(s), "-cp", jars, "org.elasticmq.server.Main")
		},
		ready: sqsResponds,
	}, o)
}

// sqsResponds lists the queues. Emulators of many services route by the service in the header. None
// checks the key.
func sqsResponds(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // the first call loads the service
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr()+"/", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("X-Amz-Target", "AmazonSQS.ListQueues")
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=any")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || !strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
		return fmt.Errorf("%s does not answer as SQS: %s: %s", s.Addr(), answer.Status, text)
	}
	return nil
}
