package job_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// A batch returns results in the order of its requests: new jobs, duplicates of earlier requests,
// and duplicates within the batch. Options are kept for each request.
func TestEnqueueMany(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := stdlib.OpenDBFromPool(b.pool)
	for name, on := range map[string]job.DB{"pgx": b.pool, "sql": pawl.SQL(db)} {
		first := b.enqueue(job.Request{Queue: name, Kind: "k", Key: "a", Value: mail{"ada"}})
		requests := []job.Request{
			{Queue: name, Kind: "k", Key: "a", Value: mail{"ada"}},
			{Queue: name, Kind: "k", Key: "b", Payload: []byte("1"), Priority: 1, StartIn: time.Hour, MaxAttempts: 3, Headers: map[string]any{"x": "y"}},
			{Queue: name, Kind: "k", Key: "b", Payload: []byte("1")},
			{Queue: name + " other", Kind: "k", Key: "a"},
			{Queue: name, Kind: "k"},
			{Queue: name, Kind: "k", Key: "own", Payload: []byte("2"), Fingerprint: pawl.FingerprintOf([]byte("own"))},
		}
		got, err := job.EnqueueMany(t.Context(), on, requests)
		b.must(err)
		if !got[0].Duplicate || got[0].ID != first.ID || got[1].Duplicate || !got[2].Duplicate || got[2].ID != got[1].ID ||
			got[3].Duplicate || got[4].Duplicate || got[5].Duplicate {
			t.Errorf("%s: %+v after %+v", name, got, first)
		}
		b.wantCount(fmt.Sprintf("select count(*) from pawl.job where queue in ('%s', '%[1]s other')", name), 5)
		b.wantCount(fmt.Sprintf("select count(*) from pawl.job where id = %d and priority = 1 and max_attempts = 3 and headers ->> 'x' = 'y' and available_at > now() + interval '59 minutes'", got[1].ID), 1)
		if again := b.enqueue(job.Request{Queue: name, Kind: "k", Key: "b", Payload: []byte("1")}); again.ID != got[1].ID {
			t.Errorf("%s: a key of a batch enqueued singly: %+v", name, again)
		}
		requests[4].Key = "c" // the others are duplicates
		again, err := job.EnqueueMany(t.Context(), on, requests)
		b.must(err)
		for i, e := range again {
			if (i == 4) == e.Duplicate || i != 4 && e.ID != got[i].ID {
				t.Errorf("%s, again: %+v after %+v", name, again, got)
			}
		}
	}
}

// One invalid request rejects the batch, with the reason.
func TestEnqueueMany_AllOrNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "k", Key: "a", Payload: []byte("1")})
	for name, c := range map[string]struct {
		bad  job.Request
		want error
	}{
		"payload changed": {job.Request{Queue: "q", Kind: "k", Key: "a", Payload: []byte("2")}, pawl.ErrKeyReused},
		"no queue":        {job.Request{Kind: "k"}, pawl.ErrScopeInvalid},
		"priority":        {job.Request{Queue: "q", Kind: "k", Priority: 5}, pawl.ErrArgumentInvalid},
		"both payloads":   {job.Request{Queue: "q", Kind: "k", Payload: []byte("1"), Value: 1}, pawl.ErrArgumentInvalid},
		"not JSON":        {job.Request{Queue: "q", Kind: "k", Value: func() {}}, pawl.ErrArgumentInvalid},
	} {
		_, err := job.EnqueueMany(t.Context(), b.pool, []job.Request{{Queue: "q", Kind: "k"}, c.bad})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := job.EnqueueMany(t.Context(), b.pool, make([]job.Request, 10001)); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("10,001 requests: %v", err)
	}
	if none, err := job.EnqueueMany(t.Context(), b.pool, nil); none != nil || err != nil {
		t.Errorf("no request: %v, %v", none, err)
	}
	b.wantCount("select count(*) from pawl.job", 1)
}

// In a database/sql transaction a job exists if and only if it commits, at every isolation level.
// With an old snapshot, losing a race for a key returns a retryable error.
func TestEnqueue_DatabaseSQL(t *testing.T) {
	t.Parallel()
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			db := stdlib.OpenDBFromPool(b.pool)
			in := func(commit bool, key string) error {
				t.Helper()
				tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				b.must(err)
				defer func() { _ = tx.Rollback() }()
				var n int
				// This takes the snapshot.
				b.must(tx.QueryRowContext(t.Context(), "select count(*) from pawl.job").Scan(&n))
				if key == "race" {
					b.enqueue(job.Request{Queue: "q", Kind: "k", Key: key})
				}
				_, err = job.EnqueueMany(t.Context(), pawl.SQLTx(tx), []job.Request{{Queue: "q", Kind: "k", Key: key}, {Queue: "q", Kind: "k", Value: 1}})
				if err == nil {
					_, err = job.Enqueue(t.Context(), pawl.SQLTx(tx), job.Request{Queue: "q", Kind: "k"})
				}
				if err != nil || !commit {
					return err
				}
				return tx.Commit()
			}
			b.must(in(false, "a"))
			b.wantCount("select count(*) from pawl.job", 0)
			b.must(in(true, "a"))
			b.wantCount("select count(*) from pawl.job", 3)
			err := in(true, "race")
			if level == sql.LevelReadCommitted {
				b.must(err)
			} else if pawl.CodeOf(err) != "40001" || !pawl.Retryable(err) {
				t.Errorf("a race lost under an old snapshot: %v", err)
			}
			alone, err := job.Enqueue(context.Background(), pawl.SQL(db), job.Request{Queue: "q", Kind: "k", Key: "alone"})
			if err != nil || alone.Duplicate {
				t.Errorf("alone: %+v, %v", alone, err)
			}
		})
	}
}

// A job claimed with pgx is held and finished in a *sql.Tx. A stale attempt aborts it.
func TestFinish_DatabaseSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := stdlib.OpenDBFromPool(b.pool)
	b.enqueue(job.Request{Queue: "q", Kind: "k"})
	late := b.claim()
	b.dieAndSweep()
	b.exec("update pawl.job set available_at = now()")
	current := b.claim()
	end := func(j job.Job) error {
		tx, err := db.BeginTx(t.Context(), nil)
		b.must(err)
		defer func() { _ = tx.Rollback() }()
		if err := errors.Join(j.Hold(t.Context(), pawl.SQLTx(tx)), j.Finish(t.Context(), pawl.SQLTx(tx))); err != nil {
			if _, e := tx.ExecContext(t.Context(), "select 1 where $1", true); e == nil {
				t.Error("the transaction goes on after P4020")
			}
			return err
		}
		return tx.Commit()
	}
	if err := end(late); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("late: %v", err)
	}
	b.must(end(current))
	b.wantCount("select count(*) from pawl.job", 0)
}

// JSON replaces all octets that are not UTF-8 with one character, so two keys would become one.
func TestEnqueue_KeysThatAreNoUTF8DoNotMeet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, r := range []job.Request{
		{Queue: "q", Kind: "k", Key: "a\xff"}, {Queue: "q", Kind: "k", Key: "a\xfe"}, {Queue: "q", Kind: "k", Lane: "\xff"},
		{Queue: "q", Kind: "k", Headers: map[string]any{"x": []string{"\xff"}}}, {Queue: "q", Kind: "k", Headers: map[string]any{"\xff": 1}},
	} {
		if _, err := job.Enqueue(t.Context(), b.pool, r); !pawl.IsFinal(err) {
			t.Errorf("%+v: %v", r, err)
		}
		if _, err := job.EnqueueMany(t.Context(), b.pool, []job.Request{{Queue: "q", Kind: "k"}, r}); !pawl.IsFinal(err) {
			t.Errorf("many, %+v: %v", r, err)
		}
	}
}
