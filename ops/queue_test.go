package ops_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
)

// set turns the archive of a queue on or off.
func (b *bed) set(queue string, on bool, want ops.Outcome, was bool) {
	b.Helper()
	r, err := ops.QueueRef{Name: queue}.SetArchive(b.Context(), b.pool, on, by)
	b.must(err)
	if r.Outcome != want || (r.Was == "on") != was || r.Changed() != (want == ops.Changed) {
		b.Errorf("queue %s: %+v, want %s, was %v", queue, r, want, was)
	}
}

// Setting a queue leaves an audit record, and its finished jobs are found by id.
func TestQueues_Archive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("q", true, ops.Changed, false)
	b.set("q", true, ops.Unchanged, true)
	b.set("a", true, ops.Changed, false)
	page, err := ops.Queues{}.List(t.Context(), b.pool)
	b.must(err)
	queues := page.Rows
	if len(queues) != 2 || queues[0].Name != "a" || queues[1].Name != "q" || !queues[1].Archive || queues[1].ID == 0 {
		t.Errorf("%+v", queues)
	}
	if page, err = (ops.Queues{After: "a", Limit: 1}).List(t.Context(), b.pool); err != nil || len(page.Rows) != 1 || page.Rows[0].Name != "q" || page.Next != "" {
		t.Errorf("%+v, %v", page, err)
	}
	e, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "q", Kind: "k", Payload: []byte("payload"), Lane: "account 17", Headers: map[string]any{"x": "y"}})
	b.must(err)
	if j, err := (ops.JobRef{ID: e.ID}).Archived(t.Context(), b.pool); !errors.Is(err, pawl.ErrNotFound) {
		t.Errorf("not finished: %+v, %v", j, err)
	}
	held := b.claim()
	tx := b.begin()
	b.must(held.Finish(t.Context(), tx))
	b.must(tx.Commit(t.Context()))
	j, err := ops.JobRef{ID: e.ID}.Archived(t.Context(), b.pool)
	if err != nil || j.ID != e.ID || j.Status != ops.StatusSucceeded || j.Queue != "q" || j.Kind != "k" || j.Lane != "account 17" || j.Position == 0 || j.Attempts != 1 ||
		j.Fence != held.Fence || string(j.Payload) != "payload" || j.FinishedAt.Before(j.CreatedAt) || j.ReadAt.Before(j.FinishedAt) {
		t.Errorf("%+v, %v", j, err)
	}
	db := stdlib.OpenDBFromPool(b.pool)
	defer func() { _ = db.Close() }()
	other, err := db.BeginTx(t.Context(), nil)
	b.must(err)
	if through, err := (ops.JobRef{ID: e.ID}).Archived(t.Context(), pawl.SQLTx(other)); err != nil || string(through.Payload) != "payload" || through.Headers["x"] != "y" {
		t.Errorf("through database/sql: %+v, %v", through, err)
	}
	b.must(other.Rollback())
	b.set("q", false, ops.Changed, true)
	b.wantCount("select count(*) from pawl.audit where verb = 'queue_set' and actor = 'ann'", 3)
}

// In the caller's transaction, the change and its record are rolled back together.
func TestQueues_OwnTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.begin()
	_, err := ops.QueueRef{Name: "q"}.SetArchive(t.Context(), tx, true, by)
	b.must(err)
	b.must(tx.Rollback(t.Context()))
	b.wantCount("select (select count(*) from pawl.queue) + (select count(*) from pawl.audit)", 0)
}

func TestQueues_BadInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		queue string
		by    ops.By
		want  error
	}{
		"no name":     {"", by, pawl.ErrScopeInvalid},
		"a long name": {strings.Repeat("q", 256), by, pawl.ErrScopeInvalid},
		"nobody":      {"q", ops.By{Reason: "r"}, pawl.ErrArgumentInvalid},
		"no reason":   {"q", ops.By{Actor: "ann"}, pawl.ErrArgumentInvalid},
	} {
		if _, err := (ops.QueueRef{Name: c.queue}).SetArchive(t.Context(), b.pool, true, c.by); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for _, limit := range []int{-1, 1001} {
		if _, err := (ops.Queues{Limit: limit}).List(t.Context(), b.pool); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	b.wantCount("select (select count(*) from pawl.queue) + (select count(*) from pawl.audit)", 0)
}
