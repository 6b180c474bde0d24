package outbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
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

// relayEnv is the environment variable with a relay process's relayOrder, as JSON.
const relayEnv = "PAWL_TEST_RELAY"

type relayOrder struct {
	URL, Sink, Faults string
	Batches           bool // the sink takes batches
}

// TestRelayProcess is the main function of the relay processes that other tests start.
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
	sink, lease, timeout := outbox.Func(post(o.Sink)), 2*time.Second, time.Second
	if o.Batches { // the timeout covers all messages of a batch
		sink, lease, timeout = oneByOne{sink, post(o.Sink)}, 30*time.Second, time.Minute
	}
	r, err := outbox.NewRelay(poolOf(t, o.URL), outbox.Config{Sink: sink, MaxPublish: 10, Concurrency: 40,
		Lease: lease, Timeout: timeout, Poll: 50 * time.Millisecond, Probe: 200 * time.Millisecond,
		Backoff: job.Backoff{Base: 10 * time.Millisecond, Max: 100 * time.Millisecond}, Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// post publishes to an HTTP server. A status of 5xx means that the sink is down.
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

// chaosTables: the writers' transactions insert into truth, and the consumer behind the inbox
// inserts into applied. n is drawn while the aggregate is locked, so within an aggregate it grows
// in commit order. applied has no constraint, so that duplicates show.
const chaosTables = `create table truth (n bigint generated always as identity, event_id text primary key, aggregate text not null);
create table applied (event_id text not null, aggregate text not null)`

// A consumer is the receiver. It records deliveries in order and applies them behind the inbox.
type consumer struct {
	*bed
	down atomic.Bool

	mu       sync.Mutex
	arrived  []arrival
	payloads map[string]string // by event id
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
		// already recorded in arrived; the next delivery is a duplicate
		w.WriteHeader(http.StatusServiceUnavailable)
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

// A relay that dies between claim and finish publishes again, always with the same id. The
// aggregate's next event waits for it. Behind the inbox each event takes effect once.
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
			b.relay(func(cfg *outbox.Config) { cfg.Sink = outbox.Func(post(server.URL)) })
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
