//go:build proof

package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/incident"
	"github.com/pawl-go/pawl/pawltest"
)

// A shell runs commands on a database.
type shell struct {
	*testing.T
	db string
}

// says runs a command and requires matches in its output. Exit codes 0 and 1 are accepted.
func (s shell) says(line string, patterns ...string) string {
	s.Helper()
	r := pawl(s.T, s.db, shellWords(line)...)
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(r.stdout + r.stderr) {
			s.Errorf("pawl %s: no %q in\n%s%s", line, p, r.stdout, r.stderr)
		}
	}
	return r.stdout
}

// do runs a command that must succeed.
func (s shell) do(line string) string {
	s.Helper()
	return mustPawl(s.T, s.db, shellWords(line)...).stdout
}

// Many problems occur at once. Each is found and fixed with the command line alone, by the commands
// of the runbooks. In the end everything has happened exactly once, and the audit says who did
// what, and why. internal/testbed/browsertest fixes the same problems with a browser.
func TestIncident(t *testing.T) {
	t.Parallel()
	db := pawltest.URL(t, incident.Schema)
	morning, sh := incident.New(t, db), shell{t, db}
	const well = "doctor --skip durability,snapshots,collations" // all tests share the server

	// 1. Nothing moves. The worker died while it held a job, and no other worker was started to
	// notice. Its presence lock is free, so doctor sees that it is gone.
	eventually(t, "doctor finds the silence", func() bool {
		return strings.Contains(pawl(t, db, shellWords(well)...).stdout, "workers: ")
	})
	sh.says("status", `^orders +1 +\d+[sm] +0 +2 +1 +0`, `^mail +.* 10000 `, `orders-1 +gone +\d+[sm] +1`)
	sh.says(well+" --waiting 1s", `^workers: worker \d+ \(orders-1\) has been silent since .* and holds 1 job`, `fix  start a worker`, `^waiting: 1 due job of kind charge in queue orders`)
	sh.says("explain order-1", `job \d+ orders +processing .*worker=orders-1`)
	morning.Work()
	morning.Until("select count(*) from charged where what = 'held'", 1)

	// 2. A dead letter is first in its lane, and later jobs of the lane wait for a decision.
	morning.Until("select count(*) from pawl.job where queue = 'orders' and status = 'dead_letter' and lane_head", 1)
	sh.says("status", `^orders .* 1$`)
	lane := regexp.MustCompile(`account 7 +block +(\d+) +dead_letter +2`).FindStringSubmatch(sh.do("lanes list --blocked"))
	if lane == nil {
		t.Fatal("the lane is not listed as blocked")
	}
	sh.says("explain "+lane[1], `failed .*no such account`, `next: pawl dlq show `+lane[1])
	sh.do("lanes unblock orders 'account 7' --job " + lane[1] + " --reason 'the account was closed; the others are theirs' --yes")
	sh.do("dlq discard " + lane[1] + " --reason 'the account was closed' --yes")
	morning.Until("select count(*) from charged where what in ('second', 'third')", 2)

	// 3. The provider was down. It is unknown whether the payment was executed, and its lane waits.
	morning.Until("select count(*) from pawl.step where status = 'unknown'", 1)
	morning.Until("select count(*) from pawl.job where queue = 'pay' and status = 'unknown'", 1)
	sh.says("stale", `^step +job/pay .*unknown`, `^job +pay .*unknown`)
	step := regexp.MustCompile(`(?m)^(job/pay) +(\S+) +pay +unknown +(\d+) +at_most_once +bank`).FindStringSubmatch(sh.do("steps list --provider bank"))
	if step == nil {
		t.Fatal("the step is not listed")
	}
	id, _, _ := strings.Cut(step[2], "@")
	sh.says("explain "+id, `step job/pay .* called`, `step job/pay .* unknown`, `next: .*pawl steps settle`)
	morning.BankIsBack()
	// not before a frozen call can no longer be sent
	eventually(t, "the step is settled", func() bool {
		return pawl(t, db, "steps", "settle", step[1], step[2], "pay", "not_executed", "--fence", step[3], "--reason", "their books have no such payment", "--yes").code == 0
	})
	morning.Until("select count(*) from charged where what in ('invoice', 'next')", 2)

	// 4. A caller uses a key again for another payload, and asks why it is refused.
	refused := connect(t, db)
	if _, err := refused.Exec(t.Context(), `select pawl_v1.job_enqueue('orders', 'charge', '"another"', '{"key": "order-1"}')`); err == nil || !strings.Contains(err.Error(), "P4002") {
		t.Fatalf("a reused key: %v", err)
	}
	sh.says("explain order-1", `enqueue_key orders order-1 +taken .*fingerprint=[0-9a-f]{64} job=\d+`, `memory_ends`)

	// 5. Ten thousand dead letters have one cause, which has been fixed.
	sh.says("dlq list --queue mail --limit 1", `smtp: connection refused`)
	if got := sh.do("dlq retry --queue mail --error 'connection refused' --dry-run"); !strings.HasPrefix(got, fmt.Sprintf("would retry %d dead letters", incident.DeadLetters)) {
		t.Error(got)
	}
	began := time.Now()
	if got := sh.do("dlq retry --queue mail --error 'connection refused' --reason 'the mail server is back' --yes"); !strings.HasPrefix(got, fmt.Sprintf("%[1]d of %[1]d", incident.DeadLetters)) {
		t.Error(got)
	}
	t.Logf("retried %d in %v", incident.DeadLetters, time.Since(began).Round(time.Millisecond))

	// No problem is left, and everything is in the audit.
	morning.IsOver()
	sh.do(well)
	sh.says("stale", "nothing waits for a decision or a worker")
	sh.says("status", "^no queues")
}
