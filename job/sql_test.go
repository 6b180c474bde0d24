package job_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// If the database's default is above READ COMMITTED, handlers that update one row lose races and
// run again in a new transaction. Each job takes effect once in every form for database/sql.
func TestWorker_SQLAboveReadCommitted(t *testing.T) {
	t.Parallel()
	type task = job.Task[[]byte]
	count := func(ctx context.Context, tx *sql.Tx, j job.Job) error {
		if err := applySQL(ctx, tx, j); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "update total set n = n + 1")
		return err
	}
	for name, h := range map[string]job.Handler{
		"one": job.HandleSQL("k", func(ctx context.Context, tx *sql.Tx, t task) error { return count(ctx, tx, t.Job) }),
		"many": job.HandleManySQL("k", func(ctx context.Context, tx *sql.Tx, ts []task) error {
			for _, t := range ts {
				if err := count(ctx, tx, t.Job); err != nil {
					return err
				}
			}
			return nil
		}).With(job.ManyPolicy{BatchSize: 5}),
		"then": job.HandleThenSQL(octets, func(context.Context, task) (int, error) { return 0, nil },
			func(ctx context.Context, tx *sql.Tx, t task, _ int) error { return count(ctx, tx, t.Job) }),
	} {
		for _, level := range []string{"repeatable%20read", "serializable"} {
			t.Run(name+" "+level, func(t *testing.T) {
				t.Parallel()
				url := pawltest.URL(t, effects, "create table total (n int not null)", "insert into total values (0)")
				// The test queries at READ COMMITTED, where it loses no race.
				c := setupCrewOn(t, url)
				c.handlers, c.concurrency = []job.Handler{h}, 4
				c.enqueueMany(40, job.Request{})
				c.run(c.worker(poolOf(t, url+"&default_transaction_isolation="+level)))
				c.untilDone()
				c.wantEffects(40)
				c.wantCount("select n from total", 40)
				c.wantCount("select count(*) from pawl.job", 0)
			})
		}
	}
}
