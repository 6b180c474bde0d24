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
	r, err := ops.SetQueue(b.Context(), b.pool, queue, ops.QueueOptions{Archive: &on}, by)
	b.must(err)
	if r.Outcome != want || r.Was.Archive != was || r.Was.Name != queue || r.Changed() != (want == ops.QueueChanged) {
		b.Errorf("queue %s: %+v, want %s, was %v", queue, r, want, was)
	}
}

// A queue is set with a record, and its finished jobs are found again by their ids.
func TestQueues_Archive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("q", true, ops.QueueChanged, false)
	b.set("q", true, ops.Unchanged, true)
	b.set("a", true, ops.QueueChanged, false)
	queues, err := ops.Queues(t.Context(), b.pool, ops.QueueFilter{})
	b.must(err)
	if len(queues) != 2 || queues[0].Name != "a" || queues[1].Name != "q" || !queues[1].Archive || queues[1].ID == 0 {
		t.Errorf("%+v", queues)
	}
	if queues, err = ops.Queues(t.Context(), b.pool, ops.QueueFilter{After: "a", Limit: 1}); err != nil || len(queues) != 1 || queues[0].Name != "q" {
		t.Errorf("%+v, %v", queues, err)
	}
	e, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "q", Kind: "k", Args: []byte("payload"), Lane: "account 17", Headers: map[string]any{"x": "y"}})
	b.must(err)
	if j, found, err := ops.Archived(t.Context(), b.pool, e.ID); err != nil || found {
		t.Errorf("not finished: %+v, %v", j, err)
	}
	held := b.claim()
	tx := b.begin()
	b.must(held.Finish(t.Context(), tx))
	b.must(tx.Commit(t.Context()))
	j, found, err := ops.Archived(t.Context(), b.pool, e.ID)
	if err != nil || !found || j.ID != e.ID || j.Queue != "q" || j.Kind != "k" || j.Lane != "account 17" || j.Position == 0 || j.Attempts != 1 ||
		j.Fence != held.Fence || string(j.Args) != "payload" || j.FinishedAt.Before(j.CreatedAt) || j.ReadAt.Before(j.FinishedAt) {
		t.Errorf("%+v, %v, %v", j, found, err)
	}
	db := stdlib.OpenDBFromPool(b.pool)
	defer func() { _ = db.Close() }()
	other, err := db.BeginTx(t.Context(), nil)
	b.must(err)
	if through, found, err := ops.Archived(t.Context(), pawl.SQLTx(other), e.ID); err != nil || !found || string(through.Args) != "payload" || through.Headers["x"] != "y" {
		t.Errorf("through database/sql: %+v, %v, %v", through, found, err)
	}
	b.must(other.Rollback())
	b.set("q", false, ops.QueueChanged, true)
	b.wantCount("select count(*) from pawl.audit where verb = 'queue_set' and actor = 'ann'", 3)
}

// In a transaction of the caller's own the change and its record are rolled back together.
func TestQueues_OwnTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	on := true
	tx := b.begin()
	_, err := ops.SetQueue(t.Context(), tx, "q", ops.QueueOptions{Archive: &on}, by)
	b.must(err)
	b.must(tx.Rollback(t.Context()))
	b.wantCount("select (select count(*) from pawl.queue) + (select count(*) from pawl.audit)", 0)
}

func TestQueues_BadInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	on := true
	for name, c := range map[string]struct {
		queue string
		by    ops.By
		want  error
	}{
		"no name":       {"", by, pawl.ErrScopeInvalid},
		"a long name":   {strings.Repeat("q", 256), by, pawl.ErrScopeInvalid},
		"nobody":        {"q", ops.By{Reason: "r"}, pawl.ErrArgumentInvalid},
		"no reason":     {"q", ops.By{Actor: "ann"}, pawl.ErrArgumentInvalid},
		"about a job's": {"q", ops.By{Actor: "ann", Reason: "r", From: []ops.Status{ops.StatusPending}}, pawl.ErrArgumentInvalid},
	} {
		if _, err := ops.SetQueue(t.Context(), b.pool, c.queue, ops.QueueOptions{Archive: &on}, c.by); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for _, limit := range []int{-1, 1001} {
		if _, err := ops.Queues(t.Context(), b.pool, ops.QueueFilter{Limit: limit}); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	b.wantCount("select (select count(*) from pawl.queue) + (select count(*) from pawl.audit)", 0)
}
