package webhook_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/webhook"
)

// For every sender, a delivery that is sent three times is answered 200 each time. It has one
// effect and is stored unchanged, with its signer.
func TestReceiver_OneEffect(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		b := receive(t, s.name)
		for range 3 {
			b.want(b.send(s.id, body), http.StatusOK)
		}
		b.wantEffects(1)
		var kept, by, kind string
		err := b.pool.QueryRow(t.Context(), "select convert_from(d.payload, 'UTF8'), d.verified_by, coalesce(d.headers::text, '') from pawl.delivery as d").Scan(&kept, &by, &kind)
		if err != nil || kept != body || by != b.verifier.Scheme.Name()+"/1" {
			t.Errorf("kept %q by %q, %v", kept, by, err)
		}
		if strings.Contains(strings.ToLower(kind), "signature") {
			t.Errorf("a signature was stored: %s", kind)
		}
		if b.counters.Count(pawl.EventSucceeded) != 1 || b.counters.Count(pawl.EventDuplicateSkipped) != 2 || b.counters.Count(pawl.EventAcknowledged) != 3 {
			t.Error("the events do not tell of one effect and two duplicates")
		}
	})
}

// No request is answered before COMMIT, neither while the handler runs nor during the COMMIT.
func TestT53_AnsweredAfterCommit(t *testing.T) {
	t.Parallel()
	for _, mode := range []consumer.Mode{consumer.RetryFromDatabase, consumer.StoreFirst} {
		entered, leave := make(chan struct{}), make(chan struct{})
		b := receive(t, "stripe", func(b *bed) {
			b.policy.Mode = mode
			b.handle = func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
				close(entered)
				<-leave
				return handle(ctx, tx, d)
			}
		})
		answered := make(chan answer, 1)
		go func() { answered <- b.send("", body) }()
		<-entered
		if mode == consumer.StoreFirst {
			b.want(<-answered, http.StatusOK) // stored as a job, not handled yet
			b.wantEffects(0)
			close(leave)
			b.until("it took effect", func() bool { return b.count("select count(*) from effect") == 1 })
			continue
		}
		var early bool
		patience.Watch(100*time.Millisecond, func() { early = len(answered) > 0 })
		if early {
			t.Error("answered while the handler runs")
		}
		close(leave)
		b.want(<-answered, http.StatusOK)
		b.wantEffects(1)
	}
}

// If replies to COMMIT are lost, each delivery takes effect once and is finally answered 200.
func TestT53_LostCommitReplies(t *testing.T) {
	t.Parallel()
	proxy, through := wireproxy.Start(t, pawltest.URL(t, effects))
	b := receiveOn(t, through, "stripe")
	random := rand.New(rand.NewPCG(1, 2)) // guarded by the proxy's lock
	proxy.OnCommit(func() wireproxy.Cut {
		return []wireproxy.Cut{wireproxy.BeforeSend, wireproxy.BeforeReply, wireproxy.Pass, wireproxy.Pass}[random.IntN(4)]
	})
	var senders sync.WaitGroup
	const deliveries = 60
	for n := range deliveries {
		senders.Go(func() {
			for try := 0; try < 20; try++ {
				if b.send("", event(fmt.Sprintf("evt_%d", n), "t", "o")).status == http.StatusOK {
					return
				}
			}
			t.Errorf("delivery %d was never taken", n)
		})
	}
	senders.Wait()
	proxy.OnCommit(nil)
	// A delivery that lost two COMMITs is stored.
	b.until("the stored deliveries have ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	b.wantEffects(deliveries)
	if proxy.Cuts() < deliveries/4 {
		t.Errorf("only %d COMMITs were cut", proxy.Cuts())
	}
}

// The same holds for HandleSQL at every default isolation level. All transactions change the total,
// so above READ COMMITTED they lose races and run again.
func TestReceiver_HandleSQL(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			proxy, through := wireproxy.Start(t, pawltest.URL(t, effects, "create table total (n int not null)", "insert into total values (0)"))
			b := receiveOn(t, through+"&default_transaction_isolation="+strings.ReplaceAll(level, " ", "%20"), "stripe", func(b *bed) {
				b.sql = func(ctx context.Context, tx *sql.Tx, m consumer.Message[[]byte]) error {
					if _, err := tx.ExecContext(ctx, "insert into effect (key, body) values ($1, $2)", m.Key, string(m.Payload)); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, "update total set n = n + 1")
					return err
				}
			})
			var commits atomic.Int32
			proxy.OnCommit(func() wireproxy.Cut {
				return []wireproxy.Cut{wireproxy.Pass, wireproxy.BeforeSend, wireproxy.Pass, wireproxy.BeforeReply}[commits.Add(1)%4]
			})
			var senders sync.WaitGroup
			const deliveries = 30
			for n := range deliveries {
				senders.Go(func() {
					taken := 0
					// sends each again after it was taken
					for try := 0; try < 40 && taken < 2; try++ {
						if b.send("", event(fmt.Sprintf("evt_%d", n), "t", "o")).status == http.StatusOK {
							taken++
						}
					}
					if taken < 2 {
						t.Errorf("delivery %d was taken %d times of 2", n, taken)
					}
				})
			}
			senders.Wait()
			proxy.OnCommit(nil)
			b.until("what was stored is done", func() bool { return b.count("select count(*) from pawl.job") == 0 })
			b.wantEffects(deliveries)
			if n := b.count("select n from total"); n != deliveries {
				t.Errorf("the total is %d of %d", n, deliveries)
			}
			if proxy.Cuts() < deliveries/4 {
				t.Errorf("only %d COMMITs were cut", proxy.Cuts())
			}
		})
	}
}

// While the database is down, requests are answered 503. No delivery that was answered 200 is lost.
func TestReceiver_DatabaseAway(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t, effects)
	b := receiveOn(t, url, "github", func(b *bed) { b.config.ResponseTimeout = 300 * time.Millisecond })
	// 300 ms may be too short for a busy machine.
	b.until("the first is taken", func() bool { return b.send("before", body).status == http.StatusOK })
	admin, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	name := admin.Database
	admin.Database = "postgres"
	conn, err := pgx.ConnectConfig(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := pgtest.Shut(t.Context(), conn, name); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.want(b.send("during", body), http.StatusServiceUnavailable)
	}
	if err := pgtest.Reopen(t.Context(), conn, name); err != nil {
		t.Fatal(err)
	}
	b.until("it is taken", func() bool { return b.send("during", body).status == http.StatusOK })
	b.wantEffects(2)
}

// Of equal deliveries at once, the handler runs for one; the others wait and are duplicates.
func TestReceiver_TwiceAtOnce(t *testing.T) {
	t.Parallel()
	var entered atomic.Int32
	b := receive(t, "standard", func(b *bed) {
		b.handle = func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
			entered.Add(1)
			patience.Elapse(200 * time.Millisecond)
			return handle(ctx, tx, d)
		}
	})
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() { b.want(b.send("msg_1", body), http.StatusOK) })
	}
	senders.Wait()
	b.wantEffects(1)
	if n := entered.Load(); n != 1 {
		t.Errorf("the handler ran %d times", n)
	}
}

// The same id with another signed payload is a dead letter, answered 200: no retry helps.
func TestReceiver_Mismatch(t *testing.T) {
	t.Parallel()
	b := receive(t, "standard")
	b.want(b.send("msg_1", `{"cents":1}`), http.StatusOK)
	for range 2 {
		b.want(b.send("msg_1", `{"cents":2}`), http.StatusOK)
	}
	b.wantEffects(1)
	if got := b.letters(); got != `mismatch: {"cents":2}` {
		t.Errorf("dead letters: %s", got)
	}
	if b.counters.Count(pawl.EventMismatch) != 1 || b.count("select count(*) from pawl.delivery") != 2 {
		t.Error("the mismatch was not told once, or a payload was not kept")
	}
	var stored string
	if err := b.pool.QueryRow(t.Context(), "select j.last_errors::text from pawl.job as j").Scan(&stored); err != nil || !strings.Contains(stored, "stored_hash") || !strings.Contains(stored, "given_hash") {
		t.Errorf("the hashes are not kept: %s, %v", stored, err)
	}
}

// A member that the sender changes on a retry is no mismatch.
func TestReceiver_VolatileFields(t *testing.T) {
	t.Parallel()
	b := receive(t, "stripe")
	for n := range 3 {
		b.want(b.send("", fmt.Sprintf(`{"pending_webhooks":%d,"id":"evt_1"}`, n)), http.StatusOK)
	}
	b.wantEffects(1)
	if got := b.letters(); got != "" {
		t.Errorf("dead letters: %s", got)
	}
}

// A genuine delivery without a key is answered 200 and becomes one dead letter with the reason.
func TestReceiver_KeyFault(t *testing.T) {
	t.Parallel()
	b := receive(t, "stripe")
	for range 2 {
		b.want(b.send("", `{"type":"no id"}`), http.StatusOK)
	}
	b.want(b.send("", `{"id":"pawl/mine"}`), http.StatusOK) // keys under pawl/ are reserved
	b.wantEffects(0)
	if got := b.letters(); got != "invalid: {\"id\":\"pawl/mine\"}\ninvalid: {\"type\":\"no id\"}" {
		t.Errorf("dead letters: %s", got)
	}
	if n := b.count(`select count(*) from pawl.job as j where j.last_errors::text like '%the sender gave no id%'`); n != 1 {
		t.Error("why it has no key is not in the dead letter")
	}
}

// Of two events of one change, only the first takes effect under the second key.
func TestT56_OneChangeTwoEvents(t *testing.T) {
	t.Parallel()
	for _, mode := range []consumer.Mode{consumer.RetryFromDatabase, consumer.StoreFirst} {
		b := receive(t, "stripe", func(b *bed) {
			b.policy.Mode = mode
			b.verifier.SemanticKey = webhook.KeyJSON("/type", "/data/object/id")
		})
		for _, id := range []string{"evt_1", "evt_2", "evt_1", "evt_2"} {
			b.want(b.send("", event(id, "invoice.paid", "in_7")), http.StatusOK)
		}
		b.want(b.send("", event("evt_3", "invoice.paid", "in_8")), http.StatusOK)
		b.until("all jobs have ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
		b.wantEffects(2)
		if n := b.count("select count(*) from pawl.inbox where result_ref is not null and key like 'pawl/semantic/%'"); n != 2 {
			t.Errorf("%d semantic keys are remembered, want 2", n)
		}
	}
}

// A failed delivery does not keep its semantic key, so another event of the change takes effect.
func TestT56_AFailureHoldsNoKey(t *testing.T) {
	t.Parallel()
	var fails atomic.Bool
	fails.Store(true)
	b := receive(t, "stripe", func(b *bed) {
		b.policy.Backoff.Base, b.policy.Backoff.Max = time.Hour, time.Hour
		b.verifier.SemanticKey = webhook.KeyJSON("/type", "/data/object/id")
		b.handle = func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
			if err := handle(ctx, tx, d); err != nil || !fails.Load() {
				return err
			}
			return errors.New("not now")
		}
	})
	b.want(b.send("", event("evt_1", "invoice.paid", "in_7")), http.StatusOK) // stored
	fails.Store(false)
	b.want(b.send("", event("evt_2", "invoice.paid", "in_7")), http.StatusOK)
	b.wantEffects(1)
	if _, err := b.pool.Exec(t.Context(), "select pawl_v1.job_retry(j.id, 'ann', 'now') from pawl.job as j"); err != nil {
		t.Fatal(err)
	}
	b.until("the retry has ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	if got := b.count("select count(*) from effect where key = 'evt_2'"); got != 1 {
		t.Errorf("evt_2 took effect %d times", got)
	}
	b.wantEffects(1)
}

// With a sequence gate, early numbers are held, late ones are dropped, and all are answered 200.
func TestReceiver_SequenceGate(t *testing.T) {
	t.Parallel()
	first := int64(1)
	b := receive(t, "standard", func(b *bed) {
		b.policy.SequenceGate = &consumer.SequenceGate{Mode: consumer.GateStrict, First: &first, HoldTimeout: time.Hour, Of: func(d pawl.Delivery) (string, int64, error) {
			n, err := strconv.ParseInt(string(d.Payload), 10, 64)
			return "account", n, err
		}}
	})
	for _, n := range []int{5, 3, 2, 1, 4, 3, 1} {
		b.want(b.send(fmt.Sprintf("msg_%d", n), strconv.Itoa(n)), http.StatusOK)
	}
	b.until("all are through", func() bool { return b.count("select count(*) from effect") == 5 })
	var order string
	if err := b.pool.QueryRow(t.Context(), "select string_agg(e.body, ' ' order by e.at) from effect as e").Scan(&order); err != nil || order != "1 2 3 4 5" {
		t.Errorf("they took effect in the order %s, %v", order, err)
	}
}

// If a handler fails, the delivery is stored and answered 200. If the sender is to retry, it is
// answered 503 and leaves no row.
func TestReceiver_OnError(t *testing.T) {
	t.Parallel()
	for on, want := range map[consumer.Mode]int{consumer.RetryFromDatabase: http.StatusOK, consumer.RetryFromSource: http.StatusServiceUnavailable} {
		var tries atomic.Int32
		b := receive(t, "stripe", func(b *bed) {
			b.policy.Mode = on
			b.handle = func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
				if err := handle(ctx, tx, d); err != nil || tries.Add(1) > 1 {
					return err
				}
				return errors.New("not the first time")
			}
		})
		b.want(b.send("", body), want)
		if on == consumer.RetryFromSource {
			if n := b.count("select (select count(*) from pawl.inbox) + (select count(*) from pawl.job) + (select count(*) from effect)"); n != 0 {
				t.Errorf("%d rows stayed", n)
			}
			b.want(b.send("", body), http.StatusOK)
		}
		b.until("it took effect", func() bool { return b.count("select count(*) from effect") == 1 })
		b.until("its job has ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	}
}

// A delivery older than the purged keys never runs as new.
func TestReceiver_Stale(t *testing.T) {
	t.Parallel()
	b := receive(t, "stripe", func(b *bed) { b.config.ProducedAt = webhook.CreatedAt("/created") })
	forgotten := b.count(`with old as (
  insert into pawl.inbox (consumer, key, hash, processed_at, received_at) select 'hooks', 'ancient', sha256(''), now(), now() - interval '32 days' returning 1)
select count(*) from old`)
	if n := b.count("select p.purged from pawl_v1.inbox_purge('hooks', 31 * 86400000::bigint) as p"); forgotten != 1 || n != 1 {
		t.Fatalf("%d of %d forgotten", n, forgotten)
	}
	old := fmt.Sprintf(`{"id":"evt_1","created":%d}`, time.Now().Add(-33*24*time.Hour).Unix())
	b.want(b.send("", old), http.StatusOK)
	b.want(b.send("", event("evt_2", "t", "o")), http.StatusOK)
	b.want(b.send("", `{"id":"evt_3","created":"soon"}`), http.StatusOK)
	b.wantEffects(2)
	if b.counters.Count(pawl.EventDeliveryStale) != 1 || b.count("select count(*) from pawl.job where status = 'dead_letter'") != 1 {
		t.Error("it is no dead letter")
	}
}

// A consumer with a Retention shorter than the sender's fails to start. The default is long enough.
func TestReceiver_RetentionIsChecked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		scheme := s.scheme(secrets(s.value)...)
		r := newReceiver(t, verifier(t, webhook.Config{Scheme: scheme}), webhook.ReceiverConfig{})
		said := scheme.Sender()
		if h := r.Info().RedeliveryHorizon; h < 14*24*time.Hour || h <= said.Retries || h <= said.Resends {
			t.Errorf("%v is remembered, the sender retries for %v and resends for %v", h, said.Retries, said.Resends)
		}
		pool := pawltest.DB(t)
		_, err := consumer.New(pool, consumer.Config{Name: "c", Source: r, Handler: consumer.HandleTx(handle), Retention: consumer.Retention{ClientRetry: said.Retention - time.Second}})
		wantInvalid(t, err, "would run twice")
		for _, fit := range []consumer.Retention{{}, {Forever: true}, {ClientRetry: time.Hour, Audit: said.Retention}} {
			if _, err := consumer.New(pool, consumer.Config{Name: "c", Source: r, Handler: consumer.HandleTx(handle), Retention: fit}); err != nil {
				t.Errorf("%+v: %v", fit, err)
			}
		}
	})
}

// When the consumer stops, running deliveries are answered by their outcome, others 503 at once.
func TestReceiver_Stop(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	b := receive(t, "stripe", func(b *bed) {
		b.consumer.Concurrency = 1
		b.handle = func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
			close(entered)
			<-leave
			return handle(ctx, tx, d)
		}
	})
	first, second := make(chan answer, 1), make(chan answer, 1)
	go func() { first <- b.send("", event("evt_1", "t", "o")) }()
	<-entered
	go func() { second <- b.send("", event("evt_2", "t", "o")) }()
	b.until("the second was received", func() bool { return b.counters.Count(pawl.EventReceived) == 2 })
	stopped := make(chan struct{})
	go func() { b.stop(); close(stopped) }()
	b.want(<-second, http.StatusServiceUnavailable)
	b.want(b.send("", event("evt_3", "t", "o")), http.StatusServiceUnavailable)
	if n := b.counters.Count(pawl.EventHandleLost); n != 2 {
		t.Errorf("%d events of lost arrivals, want 2", n)
	}
	close(leave)
	b.want(<-first, http.StatusOK)
	<-stopped
	b.wantEffects(1)
}

// Requests above MaxWaiting are answered 503. A client that disconnects frees its place.
func TestReceiver_Full(t *testing.T) {
	t.Parallel()
	s := senderNamed("github")
	r := newReceiver(t, s.verifier(t), webhook.ReceiverConfig{MaxWaiting: 2, ResponseTimeout: time.Minute})
	serve := func(ctx context.Context, id string) *httptest.ResponseRecorder {
		w, request := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
		request.Header = s.sign(t, now, body)
		request.Header.Set("X-GitHub-Delivery", id)
		r.ServeHTTP(w, request)
		return w
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for _, id := range []string{"a", "b"} {
		waiting.Go(func() { serve(ctx, id) })
	}
	var got []pawl.Delivery
	for len(got) < 2 {
		ds, err := r.Receive(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ds...)
	}
	if w := serve(t.Context(), "c"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a third was answered %d", w.Code)
	}
	cancel()
	waiting.Wait()
	ended, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	serve(ended, "d") // waits, and is not refused at once
	if err := r.Release(t.Context(), 0, got...); err != nil {
		t.Error(err)
	}
	if ds, err := r.Receive(t.Context(), 10); len(ds) != 0 || err != nil {
		t.Errorf("requests of clients that have gone were received again: %v, %v", ds, err)
	}
}

// NewReceiver refuses an invalid configuration.
func TestNewReceiver_Refuses(t *testing.T) {
	t.Parallel()
	s := senderNamed("stripe")
	for part, c := range map[string]webhook.ReceiverConfig{"ResponseTimeout": {ResponseTimeout: time.Hour}, "MaxWaiting": {MaxWaiting: -1}} {
		_, err := webhook.NewReceiver(s.verifier(t), c)
		wantInvalid(t, err, part)
	}
	_, err := webhook.NewReceiver(nil, webhook.ReceiverConfig{})
	wantInvalid(t, err, "Verifier")
	_, err = webhook.NewReceiver(s.verifier(t, func(c *webhook.Config) { c.MaxBody = 5 << 20 }), webhook.ReceiverConfig{})
	wantInvalid(t, err, "can be stored")
}

// Slack's url_verification is answered and not stored. Other requests are deliveries.
func TestReceiver_SlackChallenge(t *testing.T) {
	t.Parallel()
	b := receive(t, "slack")
	if a := b.send("", `{"type":"url_verification","challenge":"3eZbrw1a"}`); a.status != http.StatusOK || a.body != "3eZbrw1a" {
		t.Errorf("%+v", a)
	}
	b.want(b.send("", `{"type":"event_callback","event_id":"Ev1","challenge":"x"}`), http.StatusOK)
	b.wantEffects(1)
	if got := b.count("select count(*) from pawl.inbox"); got != 1 {
		t.Errorf("%d are remembered, want 1", got)
	}
}

// A body that is not JSON verifies like any other, and a handler of octets gets it unchanged. For a
// handler of a type it is a dead letter, answered 200. It has no key and no time from the body:
// without another key it is a dead letter, too.
func TestReceiver_BodiesThatAreNoJSON(t *testing.T) {
	t.Parallel()
	const form = "payload=%7B%22action%22%3A%22opened%22%7D"
	type push struct{ Action string }
	typed := func(b *bed) {
		b.handler = consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[push]) error {
			return handle(ctx, tx, consumer.Message[[]byte]{Delivery: m.Delivery})
		})
	}
	for name, c := range map[string]struct {
		sender  string
		change  func(*bed)
		effects int
		letters string
	}{
		"octets":               {"github", func(b *bed) { b.config.ProducedAt = webhook.CreatedAt("/created") }, 1, ""},
		"a type":               {"github", typed, 0, ": " + form},
		"no id in a form":      {"slack", func(*bed) {}, 0, "invalid: " + form},
		"the body is the key":  {"slack", func(b *bed) { b.verifier.Key = webhook.KeyBody() }, 1, ""},
		"no pointer in a form": {"github", func(b *bed) { b.verifier.SemanticKey = webhook.KeyJSON("/action") }, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := receive(t, c.sender, c.change)
			id := "d-1"
			if c.sender == "slack" {
				id = "" // a form has none
			}
			h := b.sign(id, form)
			h.Set("Content-Type", "application/x-www-form-urlencoded")
			for range 2 {
				b.want(b.post(h, form), http.StatusOK)
			}
			b.wantEffects(c.effects)
			if got := b.letters(); got != c.letters {
				t.Errorf("dead letters %q, want %q", got, c.letters)
			}
			if got := b.count("select count(*) from effect where body <> $1", form); got != 0 {
				t.Errorf("%d effects are of other octets", got)
			}
		})
	}
}
