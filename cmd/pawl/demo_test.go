package main

import (
	"strings"
	"testing"
)

// The promise holds with real processes and SIGKILL: duplicates are absorbed, no order is doubled
// or lost. The database in the environment is not touched.
func TestDemo_KeepsThePromise(t *testing.T) {
	t.Parallel()
	d := newDemo(t, "--messages", "400", "--duplicates", "3", "--workers", "3", "--kills", "5", "--seed", "11", "--json")
	r := mustReport(t, d.run())
	r.wantKept(t, 400, 0)
	if *r.Kills != 5 || len(r.KilledAt) != 5 || *r.Deliveries <= 400 || *r.DuplicatesAbsorbed == 0 || *r.Seed != 11 || *r.Seconds <= 0 || *r.PerSecond <= 0 {
		t.Errorf("%s", d.stdout.String())
	}
	named := 0
	for _, k := range r.KilledAt {
		if k.Point != "random moment" {
			named++
		}
	}
	if named == 0 {
		t.Errorf("no worker died at a named point: %+v", r.KilledAt)
	}
	d.wantNothingLeft()
}

// A run that takes too long names the flag to raise.
func TestDemo_Timeout(t *testing.T) {
	t.Parallel()
	d := newDemo(t, "--messages", "50000", "--kills", "0", "--timeout", "3s", "--json")
	d.run()
	wantFailure(t, d.result(), 1, "not finished after 3s", "raise --timeout")
	d.wantNothingLeft()
}

// Without PostgreSQL the demo prints one line with the next step.
func TestDemo_NoPostgreSQL(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	d.cmd.Env = append(d.cmd.Env, "PAWL_PG_BIN=/nowhere")
	r := d.run()
	r.stderr = strings.TrimPrefix(r.stderr, "starting a private PostgreSQL\n")
	wantFailure(t, r, 1, "demo: ", "PAWL_PG_BIN must name the directory")
}

// A broker whose client is in another program is refused with that program's name, an unknown one
// with the names of all brokers.
func TestDemo_BrokerOfAnotherProgram(t *testing.T) {
	t.Parallel()
	for _, broker := range []string{"kafka", "nats", "rabbitmq"} {
		wantFailure(t, newDemo(t, "--broker", broker).run(), 2, "--broker: ", broker, "pawl-brokers")
	}
	wantFailure(t, newDemo(t, "--broker", "redis").run(), 2, `no broker "redis"`, "kafka", "nats", "rabbitmq", "sqs")
}
