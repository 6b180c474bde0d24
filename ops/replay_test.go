package ops_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/pawltest"
)

// Failed deliveries are replayed in three cases: from their jobs, from kept copies after the jobs
// were discarded, and after they were forgotten. Each replay runs the handler once more, and no
// effect occurs twice, even if the sender sends again meanwhile. Deliveries that took effect are
// left alone.
func TestT38_ReplayIsNotSwallowedAndDoublesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.pool.Exec(t.Context(), "create table effect (key text not null)")
	b.must(err)
	source := &pawltest.Source{}
	var broken atomic.Bool
	var runs atomic.Int32
	broken.Store(true)
	f, err := consumer.New(b.pool, consumer.Config{Name: "orders", Source: source, Keep: consumer.Keep{Mode: consumer.KeepAll, Attributes: []string{"type"}}, Concurrency: 1, RetryConcurrency: 1,
		Hooks: (&pawl.Counters{}).Hooks(), Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
			runs.Add(1)
			if broken.Load() && d.Key != "fine" {
				return pawl.Final(errors.New("the account is missing"))
			}
			if d.Attributes["type"] != "order" || d.MessageID != "message of "+d.Key {
				return pawl.Final(errors.New("it came back without what came with it"))
			}
			_, err := tx.Exec(ctx, "insert into effect values ($1)", d.Key)
			return err
		})})
	b.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() { cancel(); b.must(<-ended) }()
	send := func(key string) {
		source.Send(pawl.Delivery{Key: key, MessageID: "message of " + key, Payload: []byte("body of " + key), Attributes: map[string]string{"type": "order", "secret": "x"},
			SemanticKey: "thing " + key})
	}
	until := func(what string, query string, want int) {
		t.Helper()
		patience.Until(t, what, func() bool { return one[int](b, query) == want })
	}
	replay := func(key string, want ops.Outcome) (r ops.Result) {
		t.Helper()
		r, err := ops.DeliveryRef{Consumer: "orders", Key: key}.Replay(t.Context(), b.pool, by)
		if err != nil || r.Outcome != want || r.Changed() != (want == ops.Replayed) {
			t.Errorf("%s: %+v, %v, want %s", key, r, err, want)
		}
		return r
	}
	for _, key := range []string{"fine", "dead", "discarded", "forgotten"} {
		send(key)
	}
	until("three are dead", "select count(*) from pawl.job where status = 'dead_letter'", 3)
	until("one took effect", "select count(*) from effect", 1)
	for _, key := range []string{"discarded", "forgotten"} {
		s, err := ops.DeliveryRef{Consumer: "orders", Key: key}.Get(t.Context(), b.pool)
		b.must(err)
		_, err = ops.JobRef{ID: s.JobID}.Discard(t.Context(), b.pool, by)
		b.must(err)
	}
	if r, err := (ops.DeliveryRef{Consumer: "orders", Key: "forgotten"}).Forget(t.Context(), b.pool, by); err != nil || !r.Changed() {
		t.Errorf("%+v, %v", r, err)
	}

	before := runs.Load()
	replay("dead", ops.Replayed) // still broken: a new attempt, and a dead letter again
	until("the dead one ran again", "select count(*) from pawl.job where status = 'dead_letter' and fence > 0", 1)
	if runs.Load() != before+1 {
		t.Errorf("%d attempts, want one more than %d", runs.Load(), before)
	}
	broken.Store(false)
	if r := replay("fine", ops.Refused); r.Was != "processed" || r.Hint == "" {
		t.Errorf("%+v", r)
	}
	if r := replay("dead", ops.Replayed); r.Was != "dead_letter" || r.JobID == 0 {
		t.Errorf("%+v", r)
	}
	for _, key := range []string{"discarded", "forgotten"} {
		if r, err := (ops.DeliveryRef{Consumer: "orders", Key: key}).Replay(t.Context(), b.pool, ops.DryRun); err != nil || r.Outcome != ops.Replayed || !r.DryRun || r.JobID != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if r := replay(key, ops.Replayed); r.Was != "" || r.JobID == 0 {
			t.Errorf("%+v", r)
		}
	}
	for _, key := range []string{"fine", "dead", "discarded", "forgotten"} {
		send(key) // the sender, at the same time
		send(key)
	}
	until("all took effect", "select count(*) from effect", 4)
	until("no job is left", "select count(*) from pawl.job", 0)
	for _, key := range []string{"fine", "dead", "discarded", "forgotten"} {
		replay(key, ops.Refused)
	}
	until("each once", "select count(distinct key) from effect", 4)
	until("and no more", "select count(*) from effect", 4)

	// A delivery that arrives after Forget runs as new.
	patience.Until(t, "every delivery is acknowledged", func() bool { return source.Open() == 0 })

	// To repeat an effect that was undone, Forget the delivery and Replay it.
	_, err = b.pool.Exec(t.Context(), "delete from effect where key = 'fine'")
	b.must(err)
	_, err = ops.DeliveryRef{Consumer: "orders", Key: "fine"}.Forget(t.Context(), b.pool, by)
	b.must(err)
	replay("fine", ops.Replayed)
	until("it is there again", "select count(*) from effect where key = 'fine'", 1)
	s, err := ops.DeliveryRef{Consumer: "orders", Key: "fine"}.Get(t.Context(), b.pool)
	if err != nil || len(s.Changes) != 2 || s.Changes[0].Verb != "inbox_forget" || s.Changes[1].Verb != "inbox_replay" || s.Changes[1].Reason != by.Reason {
		t.Errorf("%+v, %v", s.Changes, err)
	}
	replay("never", ops.Absent)
}

// Kept deliveries of an interval are listed oldest first, page by page.
func TestDeliveries_ListsWhatWasKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.pool.Exec(t.Context(), `insert into pawl.delivery (consumer, key, payload, received_at)
		select c, 'm' || n, '', timestamptz '2026-11-21 12:00Z' + n * interval '1 s' from generate_series(1, 1200) as n, unnest('{orders,others}'::text[]) as c;
		insert into pawl.delivery (consumer, key, payload, received_at) values ('orders', 'pawl/mismatch/1', '', '2026-11-21 12:00:02Z')`)
	b.must(err)
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	n := 1
	for f := (ops.Deliveries{Consumer: "orders", From: noon.Add(2 * time.Second), Until: noon.Add(1100 * time.Second), Limit: 500}); ; {
		page, err := f.List(t.Context(), b.pool)
		b.must(err)
		for _, d := range page.Rows {
			if n++; d.ReceivedAt.Sub(noon) != time.Duration(n)*time.Second || !d.Kept || d.Remembered {
				t.Fatalf("%+v is not number %d", d, n)
			}
		}
		if f.After = page.Next; f.After == "" {
			break
		}
	}
	if n != 1099 {
		t.Errorf("the last is %d", n)
	}
	for _, bad := range []ops.Deliveries{{Consumer: "orders", From: noon, Until: noon}, {From: noon}, {Consumer: "orders", After: "m1"}} {
		if _, err := bad.List(t.Context(), b.pool); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
