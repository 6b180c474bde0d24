//go:build proof

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/webhook"
)

const secret = "for this test only"

// TestMain runs the service itself in the processes that the tests start. Each may be given a point
// at which it dies.
func TestMain(m *testing.M) {
	if faults, child := os.LookupEnv("SERVICE_FAULTS"); child {
		if faults != "" {
			if err := fault.Arm(faults); err != nil {
				panic(err)
			}
		}
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The program is short enough to read in a quarter of an hour.
func TestService_IsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(text, []byte("\n")); lines > 220 {
		t.Errorf("main.go has %d lines, and 220 are enough", lines)
	}
	if files, _ := os.ReadDir("."); len(files) != 4 {
		t.Errorf("main.go, its table and two files of tests are all there is, not %v", files)
	}
}

// deaths are the points at which processes die, one after the other: one in each part.
var deaths = []string{"command.commit.after", "consumer.commit.before", "step.call.after", "job.commit.before", "outbox.publish.after"}

// Orders arrive over HTTP and SQS, each several times. The provider misbehaves, refunds are
// announced repeatedly and early, and the process is killed in each part of its work. In the end
// everything is sent again. Each order exists once, is charged once in the provider's records and
// refunded once, and its events have one id. Each day is reported once.
func TestService_EachEffectOnce(t *testing.T) {
	t.Parallel()
	const orders = 24 // by each way; every sixth card is declined, every fourth charge refunded
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, seed)

	// The schedule is set three days back. The missed days must be reported.
	p := w.start("")
	p.untilReady()
	w.exec("update pawl.schedule set next_at = next_at - interval '3 days', since_at = since_at - interval '3 days'")
	p.kill()

	var clients sync.WaitGroup
	answers := make([]string, orders)
	send := func() {
		for n := range orders {
			m := pawlsqs.Message{Key: fmt.Sprint("m-", n), Payload: fmt.Appendf(nil, `{"customer":"sqs-%d","cents":%d}`, n, 100+n)}
			w.send(m, m)
		}
	}
	ask := func(n int) {
		answer := w.ask(n)
		if answers[n] == "" {
			answers[n] = answer
		}
		if answer != answers[n] {
			t.Errorf("order %d was answered %q, then %q", n, answers[n], answer)
		}
	}
	clients.Go(send)
	for n := range orders {
		clients.Go(func() { ask(n) })
	}
	stopRefunds := make(chan struct{})
	refunds := sync.WaitGroup{}
	refunds.Go(func() { w.refund(stopRefunds) })
	for _, point := range deaths {
		p := w.start(fmt.Sprintf("%s=kill@%d", point, random.IntN(3)))
		if !p.endsWithin(time.Duration(3000+random.IntN(4000)) * time.Millisecond) {
			t.Logf("not reached: %s", point)
			p.kill() // at a random moment instead
		}
	}

	p = w.start("")
	clients.Wait()
	send()
	for n := range orders {
		clients.Go(func() { ask(n) })
	}
	clients.Wait()
	p.until("each order has an answer of the provider", w.count("select count(*) from payment"), 2*orders)
	p.until("each refund is booked", w.count("select count(*) from refund"), len(w.refundable()))
	close(stopRefunds)
	refunds.Wait()
	p.until("no message is left", func() int { s := w.queues.Stats("orders"); return s.Ready + s.InFlight }, 0)
	p.until("no work is left", w.count("select count(*) from pawl.job as j where j.status <> 'dead_letter'"), 0)

	w.wantBooks(orders)
	w.wantEvents()
	if days := one[string](w, "select format('%s of %s', count(*), count(distinct r.until)) from daily_report as r"); days != "3 of 3" {
		t.Errorf("reports: %s", days)
	}
	metrics := w.get("/metrics")
	for _, line := range []string{`pawl_events_total\{kind="succeeded",op="job.commit",scope="payments"\} [1-9]`, `pawl_events_total\{kind="replay",op="command.claim",scope=""\} [1-9]`,
		`pawl_events_total\{kind="received",op="webhook.receive",scope="stripe"\} [1-9]`, `pawl_database_read_up\{read="jobs"\} 1`} {
		if !regexp.MustCompile(line).MatchString(metrics) {
			t.Errorf("/metrics does not say %s:\n%s", line, metrics)
		}
	}
	p.stop()
}

// wantBooks compares the tables with the provider's records.
func (w *world) wantBooks(each int) {
	w.Helper()
	charged := map[string][]string{}
	for _, c := range w.provider.Charges() {
		var o Order
		if err := json.Unmarshal([]byte(c.Body), &o); err != nil {
			w.Fatal(err)
		}
		charged[o.Customer] = append(charged[o.Customer], c.ID)
	}
	rows, err := w.db.Query(w.Context(), `select o.customer, count(distinct o.id)::int, count(distinct p.ctid)::int, count(distinct r.ctid)::int,
       coalesce(max(p.charge), ''), coalesce(max(p.declined), '')
  from orders as o left join payment as p on p.order_id = o.id left join refund as r on r.order_id = o.id group by o.customer`)
	if err != nil {
		w.Fatal(err)
	}
	type book struct {
		Customer                  string
		Orders, Payments, Refunds int
		Charge, Declined          string
	}
	books, err := pgx.CollectRows(rows, pgx.RowToStructByPos[book])
	if err != nil {
		w.Fatal(err)
	}
	if len(books) != 2*each {
		w.Errorf("%d customers have ordered, want %d", len(books), 2*each)
	}
	for _, b := range books {
		want := book{Customer: b.Customer, Orders: 1, Payments: 1}
		if declines(b.Customer) {
			want.Declined = "the card was declined"
		} else if len(charged[b.Customer]) == 1 {
			want.Charge = charged[b.Customer][0]
		}
		if slices.Contains(w.refundable(), want.Charge) {
			want.Refunds = 1
		}
		if charges := len(charged[b.Customer]); b != want || (charges != 1) != declines(b.Customer) {
			w.Errorf("the books say %+v, want %+v; the provider has charged %d times", b, want, charges)
		}
	}
	if left := one[string](w, `select concat_ws(', ', (select string_agg(j.queue || ' ' || j.status || ' ' || j.kind, '; ') from pawl.job as j),
 (select string_agg(s.status, '; ') from pawl.step as s where s.status = 'unknown'))`); left != "" {
		w.Errorf("left: %s", left)
	}
}

// wantEvents checks that each event has one id, however often it was published, and that there are
// no other events. It compares sorted types, because the queue keeps no order.
func (w *world) wantEvents() {
	w.Helper()
	ids, types := map[string]string{}, map[string][]string{}
	for _, m := range w.published() {
		what := m.subject + " " + m.kind
		if first, known := ids[what]; known && first != m.id {
			w.Errorf("%s was published as %s and as %s", what, first, m.id)
		}
		if ids[what] == "" {
			types[m.customer] = append(types[m.customer], m.kind)
		}
		ids[what] = m.id
	}
	for _, customer := range one[[]string](w, "select array_agg(o.customer) from orders as o") {
		want := "OrderPlaced OrderPaid"
		switch {
		case declines(customer):
			want = "OrderPlaced OrderDeclined"
		case one[bool](w, "select exists (select 1 from refund as r join orders as o on o.id = r.order_id where o.customer = '"+customer+"')"):
			want += " OrderRefunded"
		}
		slices.Sort(types[customer]) // a standard queue keeps no order
		sorted := strings.Fields(want)
		slices.Sort(sorted)
		if !slices.Equal(types[customer], sorted) {
			w.Errorf("events of %s: %v, want %s", customer, types[customer], want)
		}
	}
}

// On SIGTERM the service turns unready, finishes the started charge, publishes its event, and exits
// with 0.
func TestService_StopFinishesStartedWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	release := w.hold("payment")
	p := w.start("", "PAWL_STOP_DELAY=4s")
	p.untilReady()
	w.ask(0)
	p.until("the order is charged, and being recorded", w.count("select count(*) from pg_locks as l where not l.granted and l.relation = 'payment'::regclass"), 1)
	began := time.Now()
	p.terminate()
	p.until("it is not ready any more", func() int { return w.status("/readyz") }, http.StatusServiceUnavailable)
	if live := w.status("/livez"); live != http.StatusOK {
		t.Errorf("/livez is %d", live)
	}
	time.AfterFunc(6*time.Second, release)
	p.stops()
	if took := time.Since(began); took < 4*time.Second || took > 31*time.Second {
		t.Errorf("it took %v", took)
	}
	if paid := one[int](w, "select count(*) from payment as p join orders as o on o.id = p.order_id where o.customer = 'http-0' and p.charge = 'ch_1'"); paid != 1 {
		t.Errorf("%d payments of the order in hand\n%s", paid, p.log)
	}
	var told []string
	for _, m := range w.published() {
		if m.customer == "http-0" {
			told = append(told, m.kind)
		}
	}
	if !slices.Contains(told, "OrderPaid") {
		t.Errorf("told: %v", told)
	}
}

// A webhook without a valid signature and an invalid order change nothing.
func TestService_RefusesInvalidRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	p := w.start("")
	p.untilReady()
	forged := pawltest.SignWebhook(t, webhook.Stripe(webhook.Secret{Value: "of somebody else"}), w.url+"/webhooks/payments", "", []byte(`{"id":"evt_1","type":"charge.refunded"}`))
	for want, r := range map[int]*http.Request{
		http.StatusUnauthorized:        forged,
		http.StatusUnprocessableEntity: w.order("bad-1", `{"customer":"bad","cents":-1}`),
		http.StatusBadRequest:          w.order("bad-2", `cents`),
	} {
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("answered %d %s, want %d", answer.StatusCode, text, want)
		}
	}
	w.send(pawlsqs.Message{Key: "bad", Payload: []byte(`{"customer":"","cents":1}`)})
	p.until("it is a dead letter", w.count("select count(*) from pawl_v1.dead_letters"), 1)
	if n := one[int](w, "select (select count(*) from orders) + (select count(*) from refund)"); n != 0 {
		t.Errorf("%d rows", n)
	}
	p.stop()
}
