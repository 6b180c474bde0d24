package pawltest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// payout has a column for the job and one that differs from run to run.
const payout = "create table payout (id uuid default gen_random_uuid(), job bigint, cents bigint, at timestamptz default now()); create table paid (job bigint primary key)"

type cents struct {
	Cents int64 `json:"cents"`
}

func jobs(n int) (requests []job.Request) {
	for i := range n {
		requests = append(requests, job.Request{Value: cents{int64(100 + i)}})
	}
	return requests
}

func pay(ctx context.Context, tx pgx.Tx, t job.Task[cents]) error {
	_, err := tx.Exec(ctx, "insert into payout (job, cents) values ($1, $2)", t.ID, t.Value.Cents)
	return err
}

// A test without a point to die at, or with nothing to compare, fails.
func TestCrashJob_ProvesSomething(t *testing.T) {
	t.Parallel()
	nothing := job.HandleTx("pay", func(context.Context, pgx.Tx, job.Task[cents]) error { return nil })
	good := job.HandleTx("pay", pay)
	for _, c := range []struct {
		test pawltest.JobTest
		want string
	}{
		{pawltest.JobTest{Handler: good}, "a JobTest needs Jobs"},
		{pawltest.JobTest{Handler: good, Jobs: []job.Request{{Kind: "bill", Value: cents{1}}}}, `a job is of kind "bill", and the handler of kind "pay"`},
		{pawltest.JobTest{Handler: good, Jobs: []job.Request{{Value: cents{1}, StartIn: time.Hour}}}, "not every job is done"},
		{pawltest.JobTest{Handler: nothing, Jobs: jobs(1)}, "changed no table and enqueued nothing, so nothing is tested"},
	} {
		c.test.Schema = []string{payout}
		if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, c.test) }); !strings.Contains(said, c.want) {
			t.Errorf("want %s, said %s", c.want, said)
		}
	}
}
