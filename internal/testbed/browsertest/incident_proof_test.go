//go:build proof

package browsertest

import (
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/incident"
	"github.com/pawl-go/pawl/pawltest"
)

// TestIncident resolves the incident of cmd/pawl's TestIncident through the pages alone. Two steps
// happen outside: a worker is started, and the provider comes back.
func TestIncident(t *testing.T) {
	t.Parallel()
	database := pawltest.URL(t, incident.Schema)
	morning := incident.New(t, database)
	login, root := serve(t, database)
	b := open(t, looks[0], login, root)

	// 1. The overview reports a silent worker that holds a job.
	b.until("", `1\s+workers silent`)
	b.reads(`10,000\s+dead letters`)
	b.until("doctor", `worker \d+ \(orders-1\) has been silent since .* and holds 1 job`)
	b.reads(`start a worker`, `abandoned`)
	b.search("order-1")
	b.reads(`Story of order-1`, `processing`, `orders-1`, `taken`)
	morning.Work()
	morning.Until("select count(*) from charged where what = 'held'", 1)

	// 2. A poison job blocks a lane: unblock the lane and discard the job.
	b.until("", `[12]\s+lanes blocked`)
	b.follow("lanes blocked")
	b.follow("account 7")
	b.reads(`waits for a decision`, `dead_letter`)
	lane := b.address()
	b.press(`//dt[normalize-space(.)="job that has the turn"]/following-sibling::dd[1]/a`)
	b.reads(`no such account`)
	poison := b.address()
	b.visit(lane)
	b.click("Go on without it")
	b.reads(`runs out of order`)
	b.click("Say what it would do")
	b.reads(`Dry run: nothing was changed`)
	b.decide("Go on without it", "the account was closed; the others are theirs")
	b.visit(poison)
	b.click("Discard")
	b.reads(`You cannot undo this`)
	b.click("Discard") // without a reason
	b.reads(`Say why`)
	b.decide("Discard", "the account was closed")
	morning.Until("select count(*) from charged where what in ('second', 'third')", 2)

	// 3. It is unknown whether the bank executed a payment. The bank says that it did not.
	b.until("", `1\s+steps of unknown outcome`)
	b.follow("steps of unknown outcome")
	b.follow("pay")
	b.reads(`no answer was recorded`, `ask the provider about the key`)
	unknown := b.address()
	morning.BankIsBack()
	// Only once a frozen call can no longer be sent.
	morning.Eventually("the step is settled", func() bool {
		b.visit(unknown)
		b.click("Say what the provider answered")
		b.reads(`second charge`)
		b.fill("what the provider answered", "not_executed")
		b.decide("Say what the provider answered", "their books have no such payment")
		return !strings.Contains(b.said(), "Nothing was changed")
	})
	morning.Until("select count(*) from charged where what in ('invoice', 'next')", 2)

	// 4. A caller reuses a key with another payload and asks why it is refused.
	if _, err := morning.Pool.Exec(t.Context(), `select pawl_v1.job_enqueue('orders', 'charge', '"another"', '{"key": "order-1"}')`); err == nil || !strings.Contains(err.Error(), "P4002") {
		t.Fatalf("a reused key: %v", err)
	}
	b.visit("")
	b.search("order-1")
	b.reads(`enqueue_key orders order-1`, `fingerprint`, `memory_ends`)

	// 5. Ten thousand dead letters have one cause, which is fixed.
	b.click("Dead letters")
	b.fill("queue", "mail")
	b.fill("last error contains", "connection refused")
	b.click("Show")
	b.reads(`smtp: connection refused`)
	b.click("Retry all of these")
	b.reads(`10,000 dead letters are selected now`, `may happen a second time`)
	b.decide("Retry all of these", "the mail server is back")
	b.until(b.address(), `It has ended`)
	b.reads(`done\s+10,000`)

	// Everything is resolved and audited.
	morning.IsOver()
	b.visit("doctor")
	b.reads(`Nothing stands still`)
	b.visit("audit")
	b.fill("verb", "step_settle")
	b.click("Show")
	b.reads(`ann`, `step_settle`, `their books have no such payment`)
	b.quiet("the morning")
}

// decide enters the reason for an action and executes it.
func (b *browser) decide(action, reason string) {
	b.Helper()
	b.fill("Why?", reason)
	b.click(action)
}
