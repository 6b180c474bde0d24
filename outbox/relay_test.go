package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/outbox"
)

var operator = ops.By{Actor: "test", Reason: "test"}

// Several relays publish each event once and each aggregate in its order.
func TestRelay_ManyAtOnceKeepTheOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const aggregates, each = 20, 25
	for n := range each {
		var events []outbox.Event
		for a := range aggregates {
			events = append(events, event(strconv.Itoa(a), fmt.Sprintf("%d %d", a, n)))
		}
		b.append(events...)
	}
	for range 3 {
		b.relay()
	}
	b.untilDone()
	next := map[int]int{}
	for _, text := range b.accepted() {
		var a, n int
		_, err := fmt.Sscan(text, &a, &n)
		b.must(err)
		if n != next[a] {
			t.Fatalf("aggregate %d: %d published, next is %d", a, n, next[a])
		}
		next[a]++
	}
	if len(b.accepted()) != aggregates*each {
		t.Errorf("%d published", len(b.accepted()))
	}
}

// A relay publishes only the events of its own sink.
func TestRelay_EachSinkHasAQueueOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ours, theirs := event("1", "ours"), event("1", "theirs")
	theirs.SinkName = "other"
	b.append(theirs, ours)
	b.relay()
	b.untilAccepted(1)
	b.want("ours")
	b.relay(func(c *outbox.Config) { c.SinkName = "other" })
	b.untilDone()
	b.want("ours", "theirs")
}

// An append wakes an idle relay that polls once an hour.
func TestAppend_WakesTheRelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay(func(c *outbox.Config) { c.Poll, c.Presence = time.Hour, job.Presence{} })
	for _, e := range []outbox.Event{event("1", "ordered"), {Type: "Changed", Payload: []byte("alone")}} {
		b.wakes(e.Type, func() { b.append(e) })
	}
}

// Where appends notify no relay (trap T27), a kick from another process wakes it, and so does the
// commit of a Pawl handler. A relay in this process is kicked without a notification.
func TestKick_NotifiesTheRelay(t *testing.T) {
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
		b.wakes("outbox.Kick", func() { b.append(event("2", "remote")); outbox.Kick(b.pool) })
		b.wakes("a handler's commit", func() {
			_, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "q", Kind: "k"})
			b.must(err)
			w.Kick()
		})
	}
	b.append(event("1", "local"))
	r.Kick() // needs no notification
	b.untilDone()
}

// A relay without presence is not woken; it polls.
func TestRelay_PollsWithoutPresence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay(func(c *outbox.Config) { c.Poll = 50 * time.Millisecond })
	for n := range 5 {
		b.append(event("1", "p"))
		b.untilAccepted(n + 1)
	}
}

// While the sink runs, no session of the relay has an open transaction (trap T18).
func TestT18_NoTransactionWhilePublishing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	open := -1
	b.append(event("1", "a"), event("2", "b"))
	b.relay(func(c *outbox.Config) {
		c.Sink = sinkFunc(func(ctx context.Context, ms []pawl.Message) []error {
			err := b.pool.QueryRow(ctx, `select count(*) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and state like 'idle in transaction%'`).Scan(&open)
			return slices.Repeat([]error{err}, len(ms))
		})
	})
	b.untilDone()
	if open != 0 {
		t.Errorf("%d transactions were open", open)
	}
}

type sinkFunc func(ctx context.Context, ms []pawl.Message) []error

func (f sinkFunc) Publish(ctx context.Context, ms []pawl.Message) []error { return f(ctx, ms) }

// Ids are not drawn in commit order (trap T19). A late commit is published late, not skipped.
func TestT19_OrderIsThatOfTheAggregate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	late := b.begin()
	// Ids 1 and 2.
	_, err := outbox.Append(t.Context(), late, event("1", "late one"), event("1", "late two"))
	b.must(err)
	b.append(event("2", "early")) // id 3
	b.untilAccepted(1)
	behind := make(chan struct{})
	go func() { b.append(event("1", "behind")); close(behind) }()
	patience.Blocked(b, b.pool, 1, "%outbox_append%")
	b.must(late.Commit(t.Context()))
	<-behind
	b.untilDone()
	b.wantInOrder("early", "late one", "late two", "behind")
}

// An old foreign transaction with an xid and a snapshot stops no relay (trap T20).
func TestT20_AForeignTransactionStopsNoRelay(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table foreign_work (n int)")
	foreign, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	b.must(err)
	b.Cleanup(func() { _ = foreign.Rollback(context.Background()) })
	_, err = foreign.Exec(t.Context(), "insert into foreign_work values (1)")
	b.must(err)
	b.relay()
	b.append(event("1", "one"), event("1", "two"), event("2", "three"))
	b.untilDone()
	b.want("one", "two", "three")
}

// A transaction that began early and commits late loses no event and no place (trap T22).
func TestT22_ALateCommitIsPublished(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	early := b.begin()
	_, err := early.Exec(t.Context(), "select now()")
	b.must(err)
	for n := range 50 {
		b.append(event("1", strconv.Itoa(n)))
	}
	b.untilAccepted(50)
	_, err = outbox.Append(t.Context(), early, event("1", "last"))
	b.must(err)
	b.must(early.Commit(t.Context()))
	if got := b.untilAccepted(51); got[50] != "last" {
		t.Errorf("the last is %s", got[50])
	}
}

// A writer that keeps an aggregate open delays only that aggregate.
func TestRelay_AnOpenWriterDelaysOnlyItsAggregate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	b.append(event("open", "before"))
	b.untilAccepted(1)
	open := b.begin()
	_, err := outbox.Append(t.Context(), open, event("open", "after"))
	b.must(err)
	for n := range 50 {
		b.append(event("other "+strconv.Itoa(n%7), "other"))
		b.untilAccepted(n + 2)
	}
	if slices.Contains(b.accepted(), "after") {
		t.Error("an event was published before its transaction committed")
	}
	b.must(open.Commit(t.Context()))
	b.wait("the open aggregate goes on", func() bool { return slices.Contains(b.accepted(), "after") })
}

// An event that the sink refuses uses exactly its attempts (trap T41). Then its aggregate's policy
// decides whether later events wait for an operator. Other aggregates never wait.
func TestT41_PoisonHead(t *testing.T) {
	t.Parallel()
	for policy, want := range map[job.LanePolicy][]string{
		job.LaneBlock: {"other"}, job.LanePark: {"next", "other"}, job.LaneSkip: {"next", "other"},
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var tries atomic.Int64
			b.refusing(func(m pawl.Message) error {
				if string(m.Payload) == "poison" {
					tries.Add(1)
					return errors.New("no such topic")
				}
				return nil
			})
			poison, next := event("1", "poison"), event("1", "next")
			poison.LanePolicy, next.LanePolicy, poison.MaxAttempts = policy, policy, 3
			b.append(poison)
			b.append(next)
			b.append(event("2", "other"))
			b.relay()
			b.wait("a dead letter", func() bool {
				return b.count("select count(*) from pawl_v1.outbox_pending where status = 'dead_letter'") == 1
			})
			b.untilAccepted(len(want))
			b.want(want...)
			if tries.Load() != 3 {
				t.Errorf("%d tries, want 3", tries.Load())
			}
			if policy != job.LaneBlock {
				return
			}
			page, err := ops.Outbox{Heads: true, Statuses: []ops.Status{ops.StatusDeadLetter}}.List(t.Context(), b.pool)
			b.must(err)
			heads := page.Rows
			if len(heads) != 1 || heads[0].AggregateID != "1" || heads[0].Waiting != 1 || heads[0].Attempts != 3 || heads[0].LastError != "no such topic" {
				t.Fatalf("the blocked heads are %+v", heads)
			}
			r, err := ops.LaneRef{Queue: outbox.QueueOf("default"), Name: heads[0].Lane, Head: heads[0].JobID}.Unblock(t.Context(), b.pool, operator)
			b.must(err)
			if !r.Changed() {
				t.Errorf("unblocking: %+v", r)
			}
			b.untilAccepted(2)
			b.want("next", "other")
		})
	}
}

// An event with a Final error becomes a dead letter at once.
func TestRelay_FinalIsTriedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.refusing(func(pawl.Message) error { return pawl.Final(errors.New("too large")) })
	b.append(outbox.Event{Type: "T"})
	b.relay()
	b.wait("a dead letter", func() bool {
		return b.count("select count(*) from pawl_v1.outbox_pending where status = 'dead_letter' and attempt_count = 1") == 1
	})
}

// A sink outage costs no attempt (trap T43), whether the sink reports it, does not answer, or
// refuses everything. The relay only probes, and continues by itself when the sink is back.
func TestT43_AnOutageBurnsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]error{
		"said":    pawl.SinkDown(errors.New("maintenance")),
		"network": &net.OpError{Op: "dial", Err: errors.New("connection refused")},
		"plain":   errors.New("500 Internal Server Error"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var calls atomic.Int64
			b.refusing(func(pawl.Message) error { calls.Add(1); return outage })
			var events []outbox.Event
			for n := range 40 {
				e := event(strconv.Itoa(n), strconv.Itoa(n))
				e.MaxAttempts = 2
				events = append(events, e)
			}
			b.append(events...)
			b.relay(func(c *outbox.Config) { c.Probe = 10 * time.Millisecond })
			b.wait("the sink was tried for long", func() bool { return calls.Load() > 40+60 })
			b.wantCount("select count(*) from pawl_v1.outbox_pending where status = 'dead_letter'", 0)
			if n := b.counters.Count(pawl.EventError); n == 0 {
				t.Error("no error event was emitted")
			}
			b.refusing(nil)
			b.untilDone()
			b.wantCount("select count(*) from pawl_v1.outbox_pending", 0)
			if len(b.accepted()) != 40 {
				t.Errorf("%d published", len(b.accepted()))
			}
			for _, m := range b.got {
				if m.Attempt > 2 {
					t.Errorf("event %s needed attempt %d", m.Payload, m.Attempt)
				}
			}
		})
	}
}

// An event that makes the sink look down is not retried forever and stops no other (T41, T43).
func TestT43_OneEventIsNotAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.refusing(func(m pawl.Message) error {
		if string(m.Payload) == "poison" {
			return pawl.SinkDown(errors.New("the broker hangs up"))
		}
		return nil
	})
	poison := event("1", "poison")
	poison.MaxAttempts = 3
	b.append(poison)
	b.relay(func(c *outbox.Config) { c.Probe = 10 * time.Millisecond })
	dead := func() bool {
		return b.count("select count(*) from pawl_v1.outbox_pending where status = 'dead_letter'") == 1
	}
	for n := 0; !dead(); n++ {
		if n == 500 {
			t.Fatalf("500 others were published and the poison is still tried: %s", b.pending())
		}
		b.append(event("other", "fine"))
		b.untilAccepted(n + 1)
	}
}

// If a handler fails, its events roll back. Events of other handlers are published even when
// retries of incoming work are exhausted (trap T46).
func TestT46_OutgoingDoesNotDependOnIncoming(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, err := job.NewWorker(b.pool, job.Config{Queues: []job.Queue{{Name: "incoming"}}, Poll: 10 * time.Millisecond,
		Backoff: job.Backoff{Base: time.Millisecond, Max: time.Millisecond}, Presence: job.Presence{Off: true},
		Handlers: []job.Handler{job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, j job.Task[[]byte]) error {
			if _, err := outbox.Append(ctx, tx, event("1", string(j.Value))); err != nil {
				return err
			}
			if string(j.Value) == "fails" {
				return errors.New("it fails after it has appended")
			}
			return nil
		})}})
	b.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, what := range []string{"first", "fails", "second"} {
		_, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "incoming", Kind: "k", Payload: []byte(what), MaxAttempts: 2})
		b.must(err)
	}
	b.wait("the failing one is a dead letter", func() bool {
		return b.count("select count(*) from pawl_v1.dead_letters where queue = 'incoming'") == 1
	})
	b.wait("the others are done", func() bool { return b.count("select count(*) from pawl_v1.outbox_pending") == 2 })
	b.relay()
	b.untilDone()
	b.want("first", "second")
}

// Published events leave no row, unless the queue keeps an archive with the time of publishing.
func TestRelay_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	b.append(event("1", "a"), event("2", "b"))
	b.untilDone()
	b.wantCount("select count(*) from pawl.job", 0)
	b.wantCount("select count(*) from pawl_v1.outbox_events", 0)
	_, err := b.pool.Exec(t.Context(), "select pawl_v1.queue_set('outbox/default', '{\"archive\": true}', 'test', 'test')")
	b.must(err)
	b.append(event("1", "c"))
	b.untilDone()
	b.wantCount(`select count(*) from pawl_v1.outbox_events where event_type = 'Changed' and aggregate_type = 'order' and aggregate_id = '1'
 and status = 'succeeded' and attempt_count = 1 and published_at > created_at`, 1)
}

// A job in the outbox's queue that is not an event becomes a dead letter. A sink that returns a
// wrong number of errors publishes nothing.
func TestRelay_ChecksWhatItIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "outbox/default", Kind: "event"})
	b.must(err)
	one := outbox.Event{Type: "T", MaxAttempts: 1}
	b.append(one, one)
	b.relay(func(c *outbox.Config) {
		c.Sink = sinkFunc(func(context.Context, []pawl.Message) []error { return []error{nil, nil, nil} })
	})
	b.wait("three dead letters", func() bool { return b.count("select count(*) from pawl_v1.dead_letters") == 3 })
}

// An invalid setting is refused, with the name of its field.
func TestNewRelay_NamesTheFieldThatItRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for field, change := range map[string]func(*outbox.Config){
		"Sink":       func(c *outbox.Config) { c.Sink = nil },
		"SinkName":   func(c *outbox.Config) { c.SinkName = strings.Repeat("s", 201) },
		"Source":     func(c *outbox.Config) { c.Source = "/\n" },
		"MaxPublish": func(c *outbox.Config) { c.MaxPublish = 501 },
		"MaxBatch":   func(c *outbox.Config) { c.MaxBatch = 1001 },
	} {
		cfg := outbox.Config{Sink: outbox.Channel(nil)}
		change(&cfg)
		named := regexp.MustCompile(`\bthe (field )?` + field + `\b`)
		if _, err := outbox.NewRelay(b.pool, cfg); pawl.CodeOf(err) != pawl.CodeArgumentInvalid || !named.MatchString(err.Error()) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Func publishes messages concurrently and survives a panic. Channel passes messages on.
func TestSinks(t *testing.T) {
	t.Parallel()
	both := make(chan struct{}, 2)
	errs := outbox.Func(func(_ context.Context, m pawl.Message) error {
		if m.ID == "panics" {
			panic("now")
		}
		both <- struct{}{}
		// Each waits for the other.
		return patience.Poll(t.Context(), func() bool { return len(both) == 2 })
	}).Publish(t.Context(), []pawl.Message{{ID: "1"}, {ID: "panics"}, {ID: "2"}})
	if errs[0] != nil || errs[1] == nil || errs[2] != nil {
		t.Errorf("Func: %v", errs)
	}
	to := make(chan pawl.Message, 1)
	ctx, cancel := context.WithCancel(t.Context())
	published := make(chan []error, 1)
	go func() { published <- outbox.Channel(to).Publish(ctx, []pawl.Message{{ID: "1"}, {ID: "2"}}) }()
	patience.Until(t, "the channel is full", func() bool { return len(to) == 1 })
	cancel()
	errs = patience.Receive(t, "Publish returns", published)
	if m := <-to; m.ID != "1" || errs[0] != nil || !pawl.IsSinkDown(errs[1]) {
		t.Errorf("Channel: %v, %v", m, errs)
	}
}
