package consumer_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/pawltest"
)

// pay books a payment, unless a process of the old build has.
func pay(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
	tag, err := tx.Exec(ctx, "insert into public.processed_messages (message_id, body) values ($1, $2) on conflict do nothing", m.MessageID, m.Payload)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	_, err = tx.Exec(ctx, "insert into payments (message_id, cents) values ($1, ($2::jsonb ->> 'cents')::bigint)", m.MessageID, string(m.Payload))
	return err
}

// An adoption is a database that goes through the steps of docs/guides/adopting.md.
type adoption struct {
	*bed
	steps []string // the page's SQL, in its order
}

func adopting(t *testing.T) *adoption {
	t.Helper()
	page, err := os.ReadFile("../docs/guides/adopting.md")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("adopting_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, handler, _ := strings.Cut(string(own), "// pay books")
	handler, _, _ = strings.Cut(handler, "\n}\n")
	if !strings.Contains(string(page), "```go\n// pay books"+handler+"\n}\n```") {
		t.Error("the guide has another handler than this test")
	}
	a := &adoption{bed: setupOn(t, pawltest.URL(t))}
	a.config.Name, a.config.Handler = "payments", consumer.HandleTx(pay).With(consumer.TxPolicy{Policy: impatient})
	for _, m := range regexp.MustCompile("(?ms)^ *```sql\n(.*?)^ *```").FindAllStringSubmatch(string(page), -1) {
		a.steps = append(a.steps, m[1])
	}
	return a
}

// step runs the page's next SQL.
func (a *adoption) step() {
	a.Helper()
	if _, err := a.pool.Exec(a.Context(), a.next(), pgx.QueryExecModeSimpleProtocol); err != nil {
		a.Fatal(err)
	}
}

func (a *adoption) next() string {
	a.Helper()
	if len(a.steps) == 0 {
		a.Fatal("the guide has no more SQL")
	}
	next := a.steps[0]
	a.steps = a.steps[1:]
	return next
}

// call makes the page's next function and returns what its first page says.
func (a *adoption) call() string {
	a.Helper()
	function, call, _ := strings.Cut(a.next(), "\nselect b.last")
	a.steps = append([]string{function}, a.steps...)
	a.step()
	call, _, _ = strings.Cut("select b.last"+call, " --")
	return a.ask(call)
}

// ask returns the answer to one statement as sorted lines of text.
func (a *adoption) ask(statement string, args ...any) string {
	a.Helper()
	rows, err := a.pool.Query(a.Context(), "select row_to_json(q)::text from ("+strings.TrimSuffix(strings.TrimSpace(statement), ";")+") as q", args...)
	if err != nil {
		a.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		a.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// old delivers a message to the build before the switch.
func (a *adoption) old(function, id, key, body string) string {
	a.Helper()
	var said string
	if err := a.pool.QueryRow(a.Context(), "select "+function+"($1, $2, $3)", id, key, []byte(body)).Scan(&said); err != nil {
		a.Fatal(err)
	}
	return said
}

func (a *adoption) wantPayments(want int) {
	a.Helper()
	if got := a.count("select count(*) from payments"); got != want {
		a.Errorf("%d payments, want %d", got, want)
	}
	if n := a.count("select count(*) from (select from payments group by message_id having count(*) > 1) as d"); n != 0 {
		a.Errorf("%d messages were paid twice", n)
	}
}

// TestGuide_Adopting follows the guide from a table of processed messages to the inbox and back:
// shadow, backfill, both builds at once, removal.
func TestGuide_Adopting(t *testing.T) {
	t.Parallel()
	a := adopting(t)
	const body = `{"cents": 5}`

	a.step() // the old build
	for _, id := range []string{"m1", "m2", "m1"} {
		a.old("consume_payment", id, id, body)
	}

	a.step() // shadow
	a.step()
	for _, m := range []struct{ id, key, body, old string }{
		{"m3", "m3", body, "processed"},
		{"m3", "m3", body, "duplicate_ignored"},             // both agree
		{"m1", "m1", body, "duplicate_ignored"},             // older than the shadow
		{"m3", "m3", `{"cents":5}`, "duplicate_ignored"},    // another payload
		{"m4", "m3", body, "processed"},                     // a resend unknown to the old table
		{"m5", strings.Repeat("k", 256), body, "processed"}, // Pawl refuses it without harm
	} {
		if said := a.old("consume_payment_shadowed", m.id, m.key, m.body); said != m.old {
			t.Errorf("%s: %s, want %s", m.id, said, m.old)
		}
	}
	want := `{"old":"duplicate_ignored","pawl":"mismatch","count":1,"example":"m3"}
{"old":"duplicate_ignored","pawl":"processed","count":1,"example":"m1"}
{"old":"processed","pawl":"P4001","count":1,"example":"` + strings.Repeat("k", 256) + `"}
{"old":"processed","pawl":"duplicate_ignored","count":1,"example":"m3"}`
	if got := a.ask(a.next()); got != want {
		t.Errorf("the shadow saw\n%s", got)
	}
	a.wantPayments(5)

	if got := a.call(); got != `{"last":"m5","copied":3,"known":2,"differ":0,"busy":0}` {
		t.Errorf("the backfill says %s", got)
	}
	if got := a.ask("select b.last, b.copied from adopt_payments_backfill('m5') as b"); got != `{"last":null,"copied":0}` {
		t.Errorf("its last page says %s", got)
	}

	a.switchOver()

	if got := a.ask(a.next()); got != `{"count":0}` {
		t.Errorf("%s jobs are left", got)
	}
	if got := a.ask(a.next()); got != `{"count":0}` { // removal
		t.Errorf("the old table knows %s that the inbox does not", got)
	}
	if _, err := a.pool.Exec(t.Context(), "delete from processed_messages where message_id = 'm2'"); err != nil {
		t.Fatal(err)
	}
	if got := a.call(); got != `{"last":"message-99","copied":1}` {
		t.Errorf("the way back says %s", got)
	}
	if said := a.old("consume_payment", "m2", "m2", body); said != "duplicate_ignored" {
		t.Errorf("after the way back the old build says %s", said)
	}
	a.step()
	if len(a.steps) > 0 {
		t.Errorf("%d blocks of the guide were not run", len(a.steps))
	}
}

// switchOver has both builds consume the same messages at once, each several times.
func (a *adoption) switchOver() {
	a.Helper()
	const messages = 200
	before := a.count("select count(*) from payments")
	var builds sync.WaitGroup
	for n := range messages {
		id := fmt.Sprintf("message-%d", n)
		a.source.Send(pawl.Delivery{MessageID: id, Key: id, Payload: fmt.Appendf(nil, `{"cents": %d}`, n)})
	}
	for start := range 4 {
		build := []string{"consume_payment", "consume_payment_shadowed"}[start%2]
		builds.Go(func() {
			for a.counters.Count(pawl.EventSucceeded) == 0 { // both at once
				runtime.Gosched()
			}
			for n := range messages {
				n = (n + start*messages/4) % messages
				id := fmt.Sprintf("message-%d", n)
				a.old(build, id, id, fmt.Sprintf(`{"cents": %d}`, n))
			}
		})
	}
	a.consume()
	builds.Wait()
	a.wantPayments(before + messages)
	if n := a.counters.Count(pawl.EventMismatch); n != 0 {
		a.Errorf("%d mismatches: the shadow's fingerprint is not the consumer's", n)
	}
	if n := a.counters.Count(pawl.EventSucceeded) + a.counters.Count(pawl.EventDuplicateSkipped); n != messages {
		a.Errorf("the consumer settled %d messages, want %d", n, messages)
	}
}
