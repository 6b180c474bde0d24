//go:build proof

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The promise holds on real brokers, with workers killed around the acknowledgement and the
// publication too.
func TestDemo_Broker(t *testing.T) {
	t.Parallel()
	brokers := filepath.Join(t.TempDir(), "pawl-brokers")
	if out, err := exec.Command("go", "build", "-o", brokers, "./pawl-brokers").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, broker := range []string{"nats", "rabbitmq", "kafka"} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			d := newDemoOf(t, brokers, "--broker", broker, "--pipeline", "--messages", "300", "--workers", "3", "--kills", "8", "--poison", "2", "--seed", "31", "--json")
			r := mustReport(t, d.run())
			r.wantKept(t, 300, 2)
			for _, of := range []string{`"shipped":298`, `"broker":"` + broker + `"`} {
				if !strings.Contains(d.stdout.String(), of) {
					t.Errorf("no %s in %s", of, d.stdout.String())
				}
			}
			if *r.Kills != 8 || *r.DuplicatesAbsorbed == 0 {
				t.Errorf("%s", d.stdout.String())
			}
			d.wantNothingLeft()
		})
	}
}

// pawl dev runs each broker for one command, which has the address in its environment.
func TestDevBroker_RunsACommand(t *testing.T) {
	t.Parallel()
	for broker, c := range map[string]struct{ variables, address string }{
		"rabbitmq": {"$RABBITMQ_URL $PAWL_RABBITMQ_URL", "amqp://guest:guest@127.0.0.1:"},
		"kafka":    {"$KAFKA_BOOTSTRAP_SERVERS $PAWL_KAFKA_BROKERS", "127.0.0.1:"},
	} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(shortDir(t), broker)
			r := mustPawl(t, "", "dev", broker, "--dir", dir, "--", "sh", "-c", "echo "+c.variables)
			both := strings.Fields(r.stdout)
			if len(both) != 2 || both[0] != both[1] || !strings.HasPrefix(both[0], c.address) {
				t.Errorf("%+v", r)
			}
			wantFailure(t, pawl(t, "", "dev", broker), 2, "--dir")
		})
	}
}
