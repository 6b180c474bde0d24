package outbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
)

// The size of the run below.
var (
	chaosTransactions = flag.Int("chaos-transactions", 1500, "transactions of TestOutbox_SurvivesChaos, of which a third roll back")
	chaosAggregates   = flag.Int("chaos-aggregates", 60, "aggregates they append to")
)

// relayEnv holds the orders of a relay process, as JSON.
const relayEnv = "PAWL_TEST_RELAY"

type relayOrder struct {
	URL, Sink, Faults string
	Runs              bool // the sink takes runs
}

// TestRelayProcess is no test: it is the relay process that others start.
func TestRelayProcess(t *testing.T) {
	var o relayOrder
	if text := os.Getenv(relayEnv); text == "" {
		return
	} else if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	if o.Faults != "" {
		if err := fault.Arm(o.Faults); err != nil {
			t.Fatal(err)
		}
	}
	sink := outbox.Func(post(o.Sink))
	if o.Runs {
		sink = oneByOne{sink, post(o.Sink)}
	}
	r, err := outbox.NewRelay(poolOf(t, o.URL), outbox.Config{Publisher: sink, Batch: 10, Concurrency: 40,
		Lease: 2 * time.Second, Timeout: time.Second, Poll: 50 * time.Millisecond, Probe: 200 * time.Millisecond,
		Backoff: job.Backoff{Base: 10 * time.Millisecond, Max: 100 * time.Millisecond}, Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// post publishes to an HTTP server: what it answers with 5xx is the server's own failure.
func post(url string) func(context.Context, pawl.Message) error {
	return func(ctx context.Context, m pawl.Message) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(m.Payload))
		if err != nil {
			return err
		}
		for name, value := range m.Headers {
			request.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode >= 500 {
			return pawl.SinkDown(errors.New(response.Status))
		}
		return nil
	}
}

// chaosTables: truth is what the writers' transactions committed, applied is what a consumer behind the inbox made of it. n is
// drawn while the aggregate is locked, so in an aggregate it grows in the order of the commits. No constraint on applied: what is
// doubled must show.
const chaosTables = `create table truth (n bigint generated always as identity, event_id text primary key, aggregate text not null);
create table applied (event_id text not null, aggregate text not null)`

// A consumer is the far side: it notes what arrives in the order of arrival, and applies it behind Pawl's inbox.
type consumer struct {
	*bed
	down atomic.Bool

	mu       sync.Mutex
	arrived  []arrival
	payloads map[string]string // of each event id
}

type arrival struct{ id, aggregate string }

func (c *consumer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || c.down.Load() {
		if len(body)%2 == 0 {
			panic(http.ErrAbortHandler) // hangs up
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	id, aggregate := r.Header.Get(pawl.HeaderEventID), r.Header.Get("ce-subject")
	c.mu.Lock()
	c.arrived = append(c.arrived, arrival{id, aggregate})
	if before, known := c.payloads[id]; known && before != string(body) {
		c.Errorf("event %s came with %q and with %q", id, before, body)
	}
	c.payloads[id] = string(body)
	c.mu.Unlock()
	err = pgx.BeginFunc(r.Context(), c.pool, func(tx pgx.Tx) error {
		claim, err := inbox.Take(r.Context(), tx, pawl.Intent{Scope: "consumer", Key: id, Fingerprint: pawl.FingerprintOf(body)})
		if err != nil || !claim.Fresh {
			return err
		}
		_, err = tx.Exec(r.Context(), "insert into applied values ($1, $2)", id, aggregate)
		return err
	})
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable) // noted already: the next delivery is a duplicate
	}
}

// flap takes the consumer down and up at random until done.
func (c *consumer) flap(done <-chan struct{}, random *rand.Rand) {
	for {
		select {
		case <-done:
			c.down.Store(false)
			return
		case <-time.After(20*time.Millisecond + time.Duration(random.Int64N(int64(400*time.Millisecond)))):
			c.down.Store(!c.down.Load())
		}
	}
}

// Writers of which a third roll back, three relay processes that are killed at random moments, and a sink that flaps: an event
// is delivered if and only if its transaction committed; in each aggregate the first deliveries come in the order of the commits;
// a second delivery has the same id and payload; behind the inbox each takes effect once.
func TestOutbox_SurvivesChaos(t *testing.T) {
	t.Parallel()
	b := setup(t, chaosTables)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &consumer{bed: b, payloads: map[string]string{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	began := time.Now()

	done := make(chan struct{})
	var busy, writers sync.WaitGroup
	busy.Go(func() { c.flap(done, rand.New(rand.NewPCG(seed, 1))) })
	kills := 0
	busy.Go(func() { kills = b.killUntil(done, server.URL, rand.New(rand.NewPCG(seed, 2))) })
	const crowd = 4
	for w := range uint64(crowd) {
		writers.Go(func() { b.write(*chaosTransactions/crowd, rand.New(rand.NewPCG(seed, 3+w))) })
	}
	writers.Wait()
	want := b.count("select count(*) from truth")
	for deadline, last := time.Now().Add(30*time.Second), 0; ; time.Sleep(50 * time.Millisecond) {
		got := b.count("select count(*) from applied")
		if got >= want && b.count("select count(*) from pawl.job") == 0 {
			break
		}
		if got > last {
			last, deadline = got, time.Now().Add(30*time.Second)
		}
		if time.Now().After(deadline) {
			t.Errorf("%d of %d applied, and no more for 30 s; pending: %s", got, want, b.pending())
			break
		}
	}
	close(done)
	busy.Wait()
	server.Close()

	b.wantCount("select count(*) from (select event_id from applied group by event_id having count(*) > 1) as d", 0)
	b.wantCount("select count(*) from truth as t full join applied as a using (event_id) where t.event_id is null or a.event_id is null", 0)
	c.wantOrder()
	t.Logf("%d events committed, %d deliveries, %d relays killed: %v", want, len(c.arrived), kills, time.Since(began).Round(time.Millisecond))
	if kills == 0 { // that some come twice is up to chance here; TestRelay_CrashRepeatsTheEvent sees to it
		t.Error("the run proves nothing: no relay was killed")
	}
}

// wantOrder requires of each aggregate that what came first came in the order of the commits.
func (c *consumer) wantOrder() {
	c.Helper()
	order := map[string]int{}
	rows, err := c.pool.Query(c.Context(), "select event_id, n from truth")
	c.must(err)
	var id string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { order[id] = n; return nil })
	c.must(err)
	seen, last := map[string]bool{}, map[string]int{}
	for _, a := range c.arrived {
		n, committed := order[a.id]
		switch {
		case seen[a.id]:
			continue
		case !committed:
			c.Errorf("event %s was delivered, and its transaction did not commit", a.id)
		case n < last[a.aggregate]:
			c.Errorf("%s: event number %d came after number %d", a.aggregate, n, last[a.aggregate])
		}
		seen[a.id], last[a.aggregate] = true, n
	}
}

// write runs transactions that append one to three events, note them, and commit or not.
func (b *bed) write(n int, random *rand.Rand) {
	for i := range n {
		aggregates := random.Perm(*chaosAggregates)[:1+random.IntN(3)]
		events := make([]outbox.Event, len(aggregates))
		for k, a := range aggregates {
			events[k] = event(strconv.Itoa(a), fmt.Sprintf("%d %d %d", i, k, random.Uint64()))
		}
		lost := random.IntN(3) == 0
		pause := time.Duration(random.Int64N(int64(5 * time.Millisecond)))
		err := b.transaction(func(tx pgx.Tx) error {
			answers, err := outbox.Append(b.Context(), tx, events...)
			for k, a := range answers {
				if err == nil {
					_, err = tx.Exec(b.Context(), "insert into truth (event_id, aggregate) values ($1, $2)", a.EventID, events[k].AggregateID)
				}
			}
			time.Sleep(pause)
			if err == nil && lost {
				err = errLost
			}
			return err
		})
		if err != nil && !errors.Is(err, errLost) {
			b.Errorf("appending: %v", err)
			return
		}
		if i%5 == 0 {
			outbox.Kick(b.pool)
		}
	}
}

var errLost = errors.New("this transaction is to roll back")

func (b *bed) transaction(fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(b.Context(), b.pool, fn)
}

// killUntil keeps three relay processes at work, of which it kills one every half second or so.
func (b *bed) killUntil(done <-chan struct{}, sink string, random *rand.Rand) (kills int) {
	crew := []*exec.Cmd{b.process(sink, ""), b.process(sink, ""), b.process(sink, "")}
	defer func() {
		for _, p := range crew {
			_ = p.Process.Kill()
			_ = p.Wait()
		}
	}()
	for {
		select {
		case <-done:
			return kills
		case <-time.After(200*time.Millisecond + time.Duration(random.Int64N(int64(800*time.Millisecond)))):
		}
		i := random.IntN(len(crew))
		_ = crew[i].Process.Kill()
		_ = crew[i].Wait()
		kills++
		crew[i] = b.process(sink, "")
	}
}

func (b *bed) process(sink, faults string) *exec.Cmd {
	text, err := json.Marshal(relayOrder{URL: b.url, Sink: sink, Faults: faults})
	if err != nil {
		panic(err)
	}
	return b.start(text)
}

func (b *bed) start(text []byte) *exec.Cmd {
	p := exec.Command(os.Args[0], "-test.run=^TestRelayProcess$")
	p.Env = append(os.Environ(), relayEnv+"="+string(text))
	if err := p.Start(); err != nil {
		b.Errorf("starting a relay: %v", err)
	}
	return p
}

// A relay that dies between claim and finish publishes once more, or only then, always with the same id; the aggregate's next
// event waits for it, and behind the inbox each takes effect once.
func TestRelay_CrashRepeatsTheEvent(t *testing.T) {
	t.Parallel()
	for point, deliveries := range map[string]int{"outbox.publish.before": 2, "outbox.publish.after": 3, "job.finish.before": 3} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := setup(t, chaosTables)
			c := &consumer{bed: b, payloads: map[string]string{}}
			server := httptest.NewServer(c)
			t.Cleanup(server.Close)
			b.append(event("1", "first"), event("1", "second"))
			dies := b.process(server.URL, point+"=kill")
			if err := dies.Wait(); err == nil {
				t.Fatal("the relay did not die")
			}
			b.relay(func(cfg *outbox.Config) { cfg.Publisher = outbox.Func(post(server.URL)) })
			b.untilDone()
			b.wantCount("select count(*) from applied", 2)
			b.wantCount("select count(distinct event_id) from applied", 2)
			ids := c.arrived
			if len(ids) != deliveries || ids[0] == ids[len(ids)-1] || deliveries == 3 && ids[0] != ids[1] {
				t.Errorf("arrived: %v", ids)
			}
		})
	}
}
