package pawltest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
)

type letter struct {
	To string `json:"to"`
}

// Enqueued sees a transaction's jobs before it commits, and only in that transaction.
func TestEnqueued(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	enqueue(t, tx, job.Request{Queue: "mail", Kind: "greet", Value: letter{"ann"}, Headers: map[string]any{"tone": "kind"}}, job.Request{Kind: "raw", Payload: []byte("{")})
	got := pawltest.Enqueued[letter](t, tx, "greet", 1)[0]
	if got.Value.To != "ann" || got.Queue != "mail" || got.Status != ops.StatusPending || got.Headers["tone"] != "kind" {
		t.Errorf("got %+v", got)
	}
	if raw := pawltest.Enqueued[[]byte](t, tx, "raw", 1)[0]; string(raw.Value) != "{" {
		t.Errorf("got %q", raw.Value)
	}
	pawltest.Enqueued[letter](t, pool, "greet", 0)

	for want, assert := range map[string]func(testing.TB){
		`1 jobs of kind "greet", want 0. There are:
	job 1, kind "greet" in queue "mail": pending, attempt 0 of 25, "{\"to\":\"ann\"}"
	job 2, kind "raw" in queue "q": pending, attempt 0 of 25, "{"`: func(tb testing.TB) { pawltest.Enqueued[letter](tb, tx, "greet", 0) },
		`0 jobs of kind "greet", want 1. There are:
	no job`: func(tb testing.TB) { pawltest.Enqueued[letter](tb, pool, "greet", 1) },
		`job 2 of kind "raw": its payload does not fit pawltest_test.letter`: func(tb testing.TB) { pawltest.Enqueued[letter](tb, tx, "raw", 1) },
	} {
		if said := judged(t, assert); !strings.Contains(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
	}
}

func TestAppended(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = outbox.Append(t.Context(), tx, outbox.Event{Type: "Sent", AggregateType: "letter", AggregateID: "17", Value: letter{"ann"}, Headers: map[string]string{"tone": "kind"}},
		outbox.Event{Type: "Sent", Value: letter{"bob"}, SinkName: "search"})
	if err != nil {
		t.Fatal(err)
	}
	got := pawltest.Appended[letter](t, tx, "Sent", 2)
	if e := got[0]; e.Value.To != "ann" || e.AggregateID != "17" || e.Headers["tone"] != "kind" || e.Sink != outbox.DefaultSink {
		t.Errorf("got %+v", e)
	}
	if e := got[1]; e.Value.To != "bob" || e.Sink != "search" {
		t.Errorf("got %+v", e)
	}
	pawltest.Appended[letter](t, tx, "Lost", 0)
	if said := judged(t, func(tb testing.TB) { pawltest.Appended[letter](tb, tx, "Lost", 1) }); !strings.Contains(said, `0 events of type "Lost", want 1. There are:
	type "Sent" for sink "default", of letter/17: pending, "{\"to\":\"ann\"}"
	type "Sent" for sink "search"`) {
		t.Errorf("said %q", said)
	}
	if said := judged(t, func(tb testing.TB) { pawltest.Appended[int](tb, tx, "Sent", 2) }); !strings.Contains(said, "does not fit int") {
		t.Errorf("said %q", said)
	}
	if said := judged(t, func(tb testing.TB) { pawltest.Appended[letter](tb, pool, "Sent", 2) }); !strings.Contains(said, "no event") {
		t.Errorf("said %q", said)
	}
}

func TestCommandAndSeen(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	print := pawl.FingerprintOf([]byte("x"))
	intent := pawl.Intent{Scope: "orders", Key: "order-1", Fingerprint: print}
	_, err := command.Once(t.Context(), pool, intent, command.Options{}, func(context.Context, pgx.Tx) (string, error) { return "17", nil })
	if err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := inbox.Take(t.Context(), tx, pawl.Intent{Scope: "shipping", Key: "m-1", Fingerprint: print}); err != nil {
		t.Fatal(err)
	}
	if c := pawltest.Command(t, tx, "orders", "order-1"); c.Status != ops.StatusSucceeded || c.Attempts != 1 {
		t.Errorf("got %+v", c)
	}
	if s := pawltest.Seen(t, tx, "shipping", "m-1"); s.ProcessedAt.IsZero() || s.JobID != 0 {
		t.Errorf("got %+v", s)
	}
	for want, assert := range map[string]func(testing.TB){
		"no command \"order-2\" in scope \"orders\". The scope has:\n\t\"order-1\": succeeded":                              func(tb testing.TB) { pawltest.Command(tb, pool, "orders", "order-2") },
		"no command \"m-1\" in scope \"shop\". The scope has:\n\tno command\nKnown of the key:\n\tdelivery of \"shipping\"": func(tb testing.TB) { pawltest.Command(tb, tx, "shop", "m-1") },
		"consumer \"shipping\" has not seen \"m-1\". Known of the key:\n\tnothing":                                          func(tb testing.TB) { pawltest.Seen(tb, pool, "shipping", "m-1") },
		"consumer \"mailing\" has not seen \"order-1\". Known of the key:\n\tcommand of \"orders\"":                         func(tb testing.TB) { pawltest.Seen(tb, pool, "mailing", "order-1") },
	} {
		if said := judged(t, assert); !strings.Contains(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
	}
}

// The assertions also read through database/sql.
func TestAssertions_SQL(t *testing.T) {
	t.Parallel()
	db := stdlib.OpenDBFromPool(pawltest.DB(t))
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	enqueue(t, pawl.SQLTx(tx), job.Request{Kind: "greet", Value: letter{"ann"}})
	if got := pawltest.Enqueued[letter](t, pawl.SQLTx(tx), "greet", 1)[0]; got.Value.To != "ann" {
		t.Errorf("got %+v", got)
	}
	if _, err := (ops.JobRef{ID: 1}).Retry(t.Context(), pawl.SQLTx(tx), ops.By{Actor: "test", Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	if got := pawltest.Enqueued[letter](t, pawl.SQLTx(tx), "greet", 1)[0]; len(got.Changes) != 1 || len(got.Changes[0].After) == 0 {
		t.Errorf("got %+v", got)
	}
	if _, err := outbox.Append(t.Context(), pawl.SQLTx(tx), outbox.Event{Type: "Sent", Value: letter{"ann"}}); err != nil {
		t.Fatal(err)
	}
	if got := pawltest.Appended[letter](t, pawl.SQLTx(tx), "Sent", 1)[0]; got.Value.To != "ann" {
		t.Errorf("got %+v", got)
	}
	if said := judged(t, func(tb testing.TB) { pawltest.Command(tb, pawl.SQLTx(tx), "orders", "x") }); !strings.Contains(said, "no command") {
		t.Errorf("said %q", said)
	}
}

// A nil pool fails the test with a message, not with a panic.
func TestHelpers_RefuseANilPool(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(testing.TB){
		"Drain":     func(tb testing.TB) { pawltest.Drain(tb, nil, job.Config{}) },
		"DrainOnce": func(tb testing.TB) { pawltest.DrainOnce(tb, nil, job.Config{}) },
		"Consume": func(tb testing.TB) {
			pawltest.Consume(tb, nil, consumer.Config{Name: "c", Source: &pawltest.Source{}, Handler: consumer.HandleTx(noHandler)})
		},
	} {
		if said := judged(t, call); !strings.Contains(said, "pool") {
			t.Errorf("%s: %q", name, said)
		}
	}
}

func noHandler(context.Context, pgx.Tx, consumer.Message[[]byte]) error { return nil }
