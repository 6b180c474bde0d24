//go:build proof

package service_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schedule"
	"github.com/pawl-go/pawl/service"
)

// impatient has the shortest StallAfter.
var impatient = service.Config{StallAfter: time.Second}

// longer exceeds the limit of a loop whose handlers have a Timeout of 100 ms: twice 100 ms and 5 s,
// twice StallAfter, and a margin.
const longer = 16 * time.Second

func (r *running) untilLive(want int) (text string) {
	r.Helper()
	r.until("liveness "+http.StatusText(want), func() (is bool) {
		var status int
		status, text = probe(r.app.Live())
		return status == want
	})
	return text
}

// A worker is stuck if hanging handlers hold all of its slots and work is due. It is live again
// when they return. An idle worker in the same process is not stuck.
func TestLive_NoticesHandlersThatHang(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	app := b.app(b.pool(b.url, 20), impatient)
	app.Worker(job.Config{Queues: []job.Queue{{Name: "q", Concurrency: 2}}, Timeout: 100 * time.Millisecond, Handlers: []job.Handler{
		// The handler ignores its context.
		job.Handle("k", func(context.Context, job.Task[[]byte]) error { <-release; return nil }),
	}})
	app.Worker(job.Config{Queues: []job.Queue{{Name: "idle"}}, Timeout: 100 * time.Millisecond, Handlers: []job.Handler{job.HandleTx("k", ignoreJob)}})
	r := b.run(app)
	b.enqueue(4)
	b.until("both slots are held", func() bool { return b.count("select count(*) from pawl.job where status = 'processing'") == 2 })
	if status, text := probe(app.Live()); status != http.StatusOK {
		t.Errorf("at once: %d %s", status, text)
	}
	if text := r.untilLive(http.StatusServiceUnavailable); !strings.Contains(text, "queue q ") || strings.Contains(text, "idle") {
		t.Errorf("stuck: %s", text)
	}
	close(release)
	r.untilLive(http.StatusOK)
	b.must(r.end())
}

// An idle process stays live.
func TestLive_WhileNothingIsDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.app(b.pool(b.url, 20), impatient)
	app.Worker(job.Config{Queues: []job.Queue{{Name: "q"}}, Timeout: 100 * time.Millisecond, Handlers: []job.Handler{job.HandleTx("k", ignoreJob)}})
	app.Consumer(consumer.Config{Name: "orders", Source: &pawltest.Source{}, Handler: consumer.HandleTx(ignoreDelivery)})
	app.Schedules(schedule.Config{})
	r := b.run(app)
	for end := time.Now().Add(longer); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if status, text := probe(app.Live()); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	b.must(r.end())
}

// A process whose connections have gone silent is stuck if a new connection reaches the database
// and work is due. If the database is unreachable, it is live and not ready.
func TestLive_NoticesSilentConnections(t *testing.T) {
	t.Parallel()
	for name, everything := range map[string]bool{"the pool's": false, "all": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			proxy, through := wireproxy.Start(t, b.url)
			cfg := impatient
			if !everything {
				cfg.Presence = job.Presence{URL: b.url}
			}
			app := b.app(b.pool(through, 8), cfg)
			app.Worker(job.Config{Queues: []job.Queue{{Name: "q"}}, Timeout: 100 * time.Millisecond, Lease: 10 * time.Second,
				Handlers: []job.Handler{job.HandleTx("k", ignoreJob)}})
			r := b.run(app)
			thaw := proxy.Freeze()
			defer thaw()
			b.enqueue(2)
			if everything {
				// Two checks without an answer come on top.
				for end := time.Now().Add(2 * longer); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
					if status, text := probe(app.Live()); status != http.StatusOK {
						t.Fatalf("%d %s", status, text)
					}
				}
				if status, text := probe(app.Ready()); status != http.StatusServiceUnavailable {
					t.Errorf("ready: %d %s", status, text)
				}
			} else if text := r.untilLive(http.StatusServiceUnavailable); !strings.Contains(text, "queue q ") {
				t.Errorf("stuck: %s", text)
			}
			thaw()
			r.untilLive(http.StatusOK)
			b.until("the jobs are done", func() bool { return b.count("select count(*) from pawl.job") == 0 })
			b.must(r.end())
		})
	}
}

// A consumer whose handlers hang receives nothing more and is stuck.
func TestLive_NoticesAConsumerThatHangs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	source := &pawltest.Source{}
	app := b.app(b.pool(b.url, 20), service.Config{StallAfter: time.Second})
	app.Consumer(consumer.Config{Name: "orders", Source: source, Concurrency: 1, Handler: consumer.HandleTx(
		func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error { <-release; return nil },
	).With(consumer.TxPolicy{Policy: consumer.Policy{Timeout: 100 * time.Millisecond}})})
	r := b.run(app)
	source.Send(pawl.Delivery{Key: "1", Payload: []byte("1")}, pawl.Delivery{Key: "2", Payload: []byte("2")})
	if text := r.untilLive(http.StatusServiceUnavailable); !strings.Contains(text, "receiving of orders") {
		t.Errorf("stuck: %s", text)
	}
	close(release)
	r.untilLive(http.StatusOK)
	b.must(r.end())
}
