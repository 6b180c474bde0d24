package deploytest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The environment and the probe paths of package service.
const (
	envDatabase = "PAWL_DATABASE_URL"
	envShutdown = "PAWL_SHUTDOWN_TIMEOUT"
	envDelay    = "PAWL_STOP_DELAY"
	envHealth   = "PAWL_HEALTH_ADDRESS"
	pathLive    = "/livez"
	pathReady   = "/readyz"
	readyWaits  = 3 * time.Second // for the database, before it responds
	usualStop   = 25 * time.Second
)

// margin is how much longer than the shutdown timeout the platform must wait. A process needs that
// time for its last acknowledgements and to exit.
const margin = 15 * time.Second

const (
	containerfile = "Containerfile"
	worker        = "kubernetes/worker.yaml"
	migrate       = "kubernetes/migrate.yaml"
	unit          = "systemd/orders-worker.service"
)

// files are the contents of the directory deploy, by relative path.
type files map[string]string

func read(t *testing.T) files {
	t.Helper()
	all := files{}
	root := "../../../deploy"
	err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		relative, _ := filepath.Rel(root, name) // cannot fail: same root
		all[filepath.ToSlash(relative)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// findings collects errors.
type findings []string

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func (f *findings) check(holds bool, format string, args ...any) {
	if !holds {
		f.add(format, args...)
	}
}

func lint(all files) (f findings) {
	image := lintContainerfile(all[containerfile], &f)
	image.worker = all[worker]
	lintWorker(all[worker], image, &f)
	lintMigrate(all[migrate], image, &f)
	lintUnit(all[unit], &f)
	return f
}

// stops returns the longest time that a program with this environment takes to stop.
func stops(env map[string]string, f *findings) time.Duration {
	whole := usualStop
	if text, set := env[envShutdown]; set {
		d, err := time.ParseDuration(text)
		f.check(err == nil, "%s: %v", envShutdown, err)
		whole = d
	}
	if text, set := env[envDelay]; set {
		d, err := time.ParseDuration(text)
		f.check(err == nil, "%s: %v", envDelay, err)
		whole += d
	}
	return whole
}

func portOf(address string, f *findings) string {
	_, port, err := net.SplitHostPort(address)
	f.check(err == nil && port != "", "%s is %q, which is no address with a port", envHealth, address)
	return port
}

// elsewhere are the files that other tests check.
var elsewhere = map[string]string{"grafana/pawl.json": "observe/prompawl, with a real Prometheus", "prometheus/pawl.rules.yaml": "observe, and the same"}

// Every file of the directory deploy is valid, and the files agree with each other.
func TestDeploy_IsTakenAndAgrees(t *testing.T) {
	all := read(t)
	for _, name := range []string{containerfile, worker, migrate, unit} {
		if all[name] == "" {
			t.Errorf("deploy/%s is not there", name)
		}
	}
	for name, test := range elsewhere {
		if all[name] == "" {
			t.Errorf("deploy/%s, which %s checks, is not there", name, test)
		}
	}
	if len(all) != 4+len(elsewhere) {
		t.Errorf("deploy holds %d files: enter a new one here, with its check", len(all))
	}
	for _, found := range lint(all) {
		t.Error(found)
	}
}

// The check finds each of these mistakes in a valid file.
func TestDeploy_MistakesAreFound(t *testing.T) {
	for _, m := range []struct{ file, was, is, want string }{
		{worker, "terminationGracePeriodSeconds: 45", "terminationGracePeriodSeconds: 30", "grace"},
		{worker, "value: 25s", "value: 60s", "grace"},
		{worker, "maxUnavailable: 0", "maxUnavailble: 0", "unknown field"},
		{worker, "      maxSurge: 1", "      maxSurge: 1\n      maxSurge: 2", "already set in map"},
		{worker, "memory: 256Mi", "memory: 256 MB", "quantit"},
		{worker, "value: :8081", "value: :8082", "8082"},
		{worker, "path: /readyz", "path: /ready", "/ready"},
		{worker, "path: /livez", "path: /readyz", "startup"},
		{worker, "              port: health\n            periodSeconds: 10", "              port: http\n            periodSeconds: 10", "port http"},
		{worker, "timeoutSeconds: 5", "timeoutSeconds: 3", "readiness"},
		{worker, "runAsNonRoot: true", "runAsNonRoot: false", "root"},
		{worker, "runAsUser: 65532", "runAsUser: 1000", "1000"},
		{worker, "  maxUnavailable: 1\n", "  minAvailable: 2\n", "PodDisruptionBudget"},
		{worker, "  maxUnavailable: 1\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: orders-worker", "  maxUnavailable: 1\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: orders", "PodDisruptionBudget"},
		{worker, "valueFrom:\n                secretKeyRef:\n                  name: orders-database\n                  key: url", "value: postgres://orders:secret@db/orders", "secret"},
		{worker, "orders:1.4.0", "orders", "tag"},
		{migrate, "orders:1.4.0", "orders:1.3.0", "image"},
		{migrate, "[/usr/local/bin/pawl, migrate, up]", "[/usr/bin/pawl, migrate, up]", "/usr/bin/pawl"},
		{migrate, "[/usr/local/bin/pawl, migrate, up]", "[/usr/local/bin/pawl, migrate, down]", "migrate up"},
		{migrate, "name: orders-database-owner", "name: orders-database", "owner"},
		{migrate, "restartPolicy: Never", "restartPolicy: Always", "restartPolicy"},
		{containerfile, "USER 65532:65532", "USER root", "USER"},
		{containerfile, "USER 65532:65532\n", "", "USER"},
		{containerfile, "EXPOSE 8081", "EXPOSE 8080", "8080"},
		{containerfile, "--from=build", "--from=builder", "builder"},
		{containerfile, "-o /out/pawl", "-o /out/pawlctl", "/out/pawl"},
		{containerfile, `ENTRYPOINT ["/usr/local/bin/worker"]`, "ENTRYPOINT /usr/local/bin/worker", "ENTRYPOINT"},
		{containerfile, " AS build", " as build", "FromAsCasing"},
		{containerfile, "STOPSIGNAL SIGTERM", "MAINTAINER ann\nSTOPSIGNAL SIGTERM", "MaintainerDeprecated"},
		{containerfile, "STOPSIGNAL SIGTERM", "STOPSIGNAL SIGINT", "SIGINT"},
		{containerfile, "EXPOSE 8081", "EXPSE 8081", "EXPSE"},
		{containerfile, "CGO_ENABLED=0 ", "", "CGO_ENABLED"},
		{unit, "TimeoutStopSec=45", "TimeoutStopSec=30", "TimeoutStopSec"},
		{unit, "KillSignal=SIGTERM", "KillSignal=SIGINT", "KillSignal"},
		{unit, "KillMode=mixed", "KilMode=mixed", "KilMode"},
		{unit, "Restart=always", "Restart=no", "Restart"},
		{unit, "DynamicUser=yes\n", "", "User"},
		{unit, "[Service]", "[Servce]", "Servce"},
	} {
		t.Run(strings.Fields(m.file + " " + strings.TrimSpace(m.is) + " -")[1], func(t *testing.T) {
			all := read(t)
			if !strings.Contains(all[m.file], m.was) {
				t.Fatalf("%s does not hold %q: the mistake cannot be made", m.file, m.was)
			}
			all[m.file] = strings.Replace(all[m.file], m.was, m.is, 1)
			if found := strings.Join(lint(all), "\n"); !strings.Contains(found, m.want) {
				t.Errorf("with %q in %s it found %q, not %q", m.is, m.file, found, m.want)
			}
		})
	}
}
