package job_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// A worker empties the table of a week ago, about once a minute, even if the database's default
// isolation level is one that the sweep refuses. A locked table is emptied the next time.
func TestArchiveKeeper(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t, `do $$ begin execute format('insert into pawl.archive_%s
select 1, 1, null, now(), now() - interval ''7 days'', 2, 1, 0, ''q'', ''k'', null, '''', null', (pawl_v1._day(now()) - 7) % 8); end $$`)
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	left := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "select count(*) from pawl_v1.archive").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	keep, due := job.NewArchiveKeeper(pool, job.Config{Queues: []job.Queue{{Name: "q"}}, Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) { t.Errorf("%+v", e) }}})
	keep(t.Context())
	if left() != 1 || time.Until(*due) > job.ArchiveSweepEvery {
		t.Fatalf("swept before it was due, or due in %v", time.Until(*due))
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "select from pawl_v1.archive"); err != nil {
		t.Fatal(err)
	}
	*due = time.Time{}
	keep(t.Context())
	if left() != 1 || time.Until(*due) < job.ArchiveSweepEvery/2 {
		t.Fatalf("swept a locked table, or due in %v", time.Until(*due))
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	*due = time.Time{}
	keep(t.Context())
	if left() != 0 {
		t.Error("not swept")
	}
}

// A failed sweep is passed to the hooks and retried.
func TestArchiveKeeper_Error(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, "drop function pawl_v1.archive_sweep()")
	var told []string
	keep, due := job.NewArchiveKeeper(pool, job.Config{Queues: []job.Queue{{Name: "q"}}, Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		told = append(told, string(e.Kind)+" "+e.Op+" "+string(pawl.CodeOf(e.Err)))
	}}})
	for range 5 { // a slow machine may cause other errors
		told, *due = nil, time.Time{}
		keep(t.Context())
		if len(told) == 1 && told[0] == "error archive.sweep 42883" {
			return
		}
	}
	t.Errorf("%q", told)
}
