//go:build proof

package outbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
)

// A kick is heard at once by a relay that polls once in an hour, where appends notify nobody: in this process, from another one, and after a
// commit of a handler of ours (trap T27: nothing depends on it).
func TestKick_WakesTheRelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.pool.Exec(t.Context(), "create or replace function pawl_v1._wake(p_queues text[]) returns void language plpgsql as 'begin end'")
	b.must(err)
	slow := func(c *outbox.Config) { c.Poll, c.Presence = time.Hour, job.Presence{} }
	r, _ := b.relay(slow)
	b.wait("the relay listens", func() bool {
		return b.count("select count(*) from pg_stat_activity where datname = current_database() and query = 'listen pawl_jobs'")+
			b.count("select count(*) from pawl.worker where presence") > 0
	})
	waits := map[string][]time.Duration{}
	published := 0
	once := func(name string, appendAndKick func()) {
		t.Helper()
		time.Sleep(5300 * time.Millisecond) // after 10, 20, … 2560 ms it has polled, and does not for another 5 s
		began := time.Now()
		appendAndKick()
		published++
		b.untilAccepted(published)
		waits[name] = append(waits[name], time.Since(began))
	}
	w, err := job.NewWorker(b.pool, job.Config{Queues: []job.Queue{{Name: "q"}}, Poll: time.Hour, Presence: job.Presence{Off: true},
		Handlers: []job.Handler{job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, _ job.Task[[]byte]) error {
			_, err := outbox.Append(ctx, tx, event("3", "handler"))
			return err
		})}})
	b.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	for range 2 {
		once("relay.Kick", func() { b.append(event("1", "local")); r.Kick() })
		once("outbox.Kick", func() { b.append(event("2", "remote")); outbox.Kick(b.pool) })
		once("a handler's commit", func() {
			_, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "q", Kind: "k"})
			b.must(err)
			w.Kick()
		})
	}
	for name, all := range waits {
		t.Log(name, all)
		if slices.Max(all) > 4*time.Second { // that it is 20 ms is measured in bench, on a quiet machine
			t.Errorf("%s: it took %v", name, all)
		}
	}
}
