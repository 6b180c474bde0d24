//go:build proof

package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Orders and their events have one effect each, through the outbox and a second queue, with workers
// killed on the way.
func TestDemo_Pipeline(t *testing.T) {
	t.Parallel()
	d := newDemo(t, "--pipeline", "--messages", "300", "--workers", "3", "--kills", "8", "--seed", "21", "--json")
	r := mustReport(t, d.run())
	r.wantKept(t, 300, 0)
	if !strings.Contains(d.stdout.String(), `"shipped":300`) {
		t.Errorf("%s", d.stdout.String())
	}
	d.wantNothingLeft()
}

// Payments arrive as webhooks, and their calls share no transaction. Each is charged once, mailed
// once and has one event, although bank and mail server misbehave and workers are killed around
// their calls.
func TestDemo_Payments(t *testing.T) {
	t.Parallel()
	d := newDemo(t, "--payments", "--messages", "200", "--workers", "3", "--kills", "8", "--seed", "23", "--json")
	r := mustReport(t, d.run())
	r.wantKept(t, 200, 0)
	for _, of := range []string{`"charged":200,`, `"mailed":200,`, `"shipped":200,`, `"payments":true,`} {
		if !strings.Contains(d.stdout.String(), of) {
			t.Errorf("no %s in %s", of, d.stdout.String())
		}
	}
	if *r.Kills != 8 || *r.Deliveries <= 200 || *r.DuplicatesAbsorbed == 0 || r.ChargeRequests <= 200 || r.Unknown == 0 {
		t.Errorf("%s", d.stdout.String())
	}
	called := false
	for _, k := range r.KilledAt {
		called = called || strings.HasPrefix(k.Point, "step.")
	}
	if !called {
		t.Errorf("nobody was killed around a call: %+v", r.KilledAt)
	}
	d.wantNothingLeft()
}

// Payments that cannot be made are kept and not charged. The output is text.
func TestDemo_PaymentsRead(t *testing.T) {
	t.Parallel()
	r := newDemo(t, "--payments", "--messages", "50", "--kills", "1", "--poison", "2", "--seed", "12").run()
	if r.code != 0 {
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	for _, row := range []string{
		"payments                          50  intents: each must take effect once\n",
		"effects                           48  order rows in PostgreSQL\n",
		"charges                           48  really made by the bank, in ",
		"emails                            48  really sent by the mail server, in ",
		"events                            48  rows behind the outbox and a queue\n",
		"dead letters                       2  kept with their payload\n",
		"doubled                            0  ok\n",
		"lost                               0  ok\n",
	} {
		if !strings.Contains(r.stdout, row) {
			t.Errorf("no %q in\n%s", row, r.stdout)
		}
	}
}

// The letter of the killed worker is not mailed again, and the frozen worker's late commit is
// rejected.
func TestDemo_Lease(t *testing.T) {
	t.Parallel()
	d := newDemo(t, "--lease")
	r := d.run()
	if r.code != 0 {
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	at := 0
	for _, step := range []string{
		"claims letter-1: attempt 1, fence 1", "SIGKILL to process", "its lease ends in", "claims letter-1: attempt ", ", fence 2",
		"has asked the mail server: already sent", "has written its row",
		"claims letter-2: attempt 1, fence 1", "is frozen (SIGSTOP)", "its lease ends in", "claims letter-2: attempt 2, fence 2",
		"finds in the database that the mail was sent", "has written its row", "SIGCONT", "is refused, with its row: job.finish: P4020",
	} {
		next := strings.Index(r.stderr[at:], step)
		if next < 0 {
			t.Fatalf("no %q behind\n%s\nin\n%s", step, r.stderr[:at], r.stderr)
		}
		at += next
	}
	for _, row := range []string{"mails                         2  ", "rows                          2  ", "doubled                       0  ok\n", "lost                          0  ok\n"} {
		if !strings.Contains(r.stdout, row) {
			t.Errorf("no %q in\n%s", row, r.stdout)
		}
	}
	d.wantNothingLeft()
}

// Orders that no handler can apply are kept, with their payload, and do not count as lost. The
// output is text.
func TestDemo_PoisonBecomesDeadLetters(t *testing.T) {
	t.Parallel()
	d := newDemo(t, "--messages", "100", "--kills", "1", "--poison", "3", "--seed", "12")
	r := d.run()
	if r.code != 0 {
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	for _, row := range []string{
		"orders sent                      100  intents: each must take effect once\n",
		"effects                           97  order rows in PostgreSQL\n",
		"dead letters                       3  kept with their payload\n",
		"workers killed                     1  SIGKILL: ",
		"doubled                            0  ok\n",
		"lost                               0  ok\n",
		", seed 12\n",
	} {
		if !strings.Contains(r.stdout, row) {
			t.Errorf("no %q in\n%s", row, r.stdout)
		}
	}
	for line := range strings.Lines(r.stdout) {
		if len(line) > 100 || strings.HasSuffix(line, " \n") {
			t.Errorf("too long, or blanks at its end: %q", line)
		}
	}
}

// With more kills than work, no order that was never sent counts as lost, and all kills happen. An
// empty first portion once broke this.
func TestDemo_FewerOrdersThanKills(t *testing.T) {
	t.Parallel()
	r := mustReport(t, newDemo(t, "--messages", "1", "--duplicates", "1", "--workers", "1", "--kills", "3", "--seed", "5", "--json").run())
	r.wantKept(t, 1, 0)
	if *r.Kills != 3 {
		t.Errorf("%d kills", *r.Kills)
	}
}

// If a demo is killed, its workers, its server and its directories are removed.
func TestDemo_KilledLeavesNothing(t *testing.T) {
	t.Parallel()
	d := startDemo(t, "--messages", "50000", "--kills", "3")
	d.end(os.Kill)
	d.wantNothingLeft()
}

// An interrupt prints one line with the seed, and leaves nothing.
func TestDemo_InterruptedLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			d := startDemo(t, "--messages", "50000", "--kills", "3", "--seed", "13", "--json")
			wantFailure(t, d.end(sig), 1, "demo: interrupted", "--seed 13")
			d.wantNothingLeft()
		})
	}
}

// If the private server ends during a run, the run ends at once.
func TestDemo_ServerEnds(t *testing.T) {
	t.Parallel()
	d := startDemo(t, "--messages", "50000", "--kills", "0", "--seed", "16", "--json")
	server := 0
	// on a busy machine one look may find none
	eventually(t, "the private server is seen", func() bool {
		for _, process := range d.processes("-k ", "pawl-pg-") {
			pid, rest, _ := strings.Cut(process, " ")
			if n, err := strconv.Atoi(pid); err == nil && strings.Contains(rest, "listen_addresses=") {
				server = n
			}
		}
		return server != 0
	})
	if err := syscall.Kill(server, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait()
	wantFailure(t, d.result(), 1, "the private PostgreSQL ended by itself", "--seed 16")
	d.wantNothingLeft()
}

// underWay matches a line of progress with effects.
var underWay = regexp.MustCompile(`s  [1-9][0-9]*/[0-9]+ effects`)

// startDemo returns once orders have taken effect, while the demo still runs.
func startDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	d := newDemo(t, args...)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
	})
	for deadline := time.Now().Add(5 * time.Minute); !underWay.MatchString(d.stderr.String()) && !strings.Contains(d.stderr.String(), "pawl: "); time.Sleep(20 * time.Millisecond) {
		// a private server and its workers start slowly beside other copies of these tests
		if time.Now().After(deadline) {
			t.Fatalf("no orders took effect within 5 min: %s", d.stderr.String())
		}
	}
	if len(d.processes("demo-worker")) == 0 {
		t.Fatalf("no worker process is to be seen: %s", d.stderr.String())
	}
	return d
}

// end sends sig and waits.
func (d *demoRun) end(sig os.Signal) result {
	d.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.Fatal(err)
	}
	_ = d.cmd.Wait()
	return d.result()
}
