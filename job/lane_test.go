package job_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// ran is the table of the handlers' rows, written in the transaction that ends the job. n is drawn
// while the job has its turn, so in a lane it grows in the order of the turns. It has no
// constraint, so that duplicates and wrong order are visible.
const ran = `create table ran (n bigint generated always as identity, lane text not null, seq int not null, position bigint not null,
  at timestamptz not null default clock_timestamp());
create index on ran (lane, at)`

func (b *bed) inLane(lane string, policy job.LanePolicy, payloads ...string) {
	b.Helper()
	for _, p := range payloads {
		b.enqueue(job.Request{Queue: "q", Kind: "k", Lane: lane, LanePolicy: policy, Payload: []byte(p)})
	}
}

// lockLane locks a lane, as a transaction that enqueued into it, until release is called.
func (b *bed) lockLane(lane string) (release func()) {
	b.Helper()
	tx := b.begin()
	b.enqueueIn(tx, job.Request{Queue: "q", Kind: "k", Lane: lane})
	return func() { b.Helper(); b.must(tx.Rollback(b.Context())) }
}

const (
	runsOfLane = "select count(*) from ran"
	outOfOrder = "select count(*) from (select seq, row_number() over (order by n) - 1 as nth from ran) as o where o.seq <> o.nth"
)

// In every form, each end kicks the next claim, so a lane does not wait for polls.
func TestLane_EachEndStartsTheNext(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"transactional", "batch", "simple", "own", "own sql"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t, ran)
			c.config.Poll = time.Hour
			c.handlers = []job.Handler{order{Form: form, Lanes: true}.handler(c.pool)}
			for i := range 30 {
				c.inLane("l", "", strconv.Itoa(i))
			}
			c.hire()
			c.untilDone()
			c.wantCount(runsOfLane, 30)
			c.wantCount(outOfOrder, 0)
		})
	}
}

// A job that ends while another transaction has locked its lane cannot promote the next. In every
// form and after every outcome, the worker promotes it when the lane is free.
func TestLane_WorkerPromotesWhatItHadToSkip(t *testing.T) {
	t.Parallel()
	final := pawl.Final(errors.New("boom"))
	for name, form := range map[string]struct {
		form string
		err  error
	}{
		"transactional": {"transactional", nil}, "batch": {"batch", nil}, "simple": {"simple", nil}, "own": {"own", nil},
		"transactional, final": {"transactional", final}, "batch, cancelled": {"batch", job.Cancel(nil)}, "simple, final": {"simple", final},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The wait for the lane's lock ends after 250 ms, so the sequence records it.
			c := setupCrew(t, ran, `create sequence promotes;
alter function pawl_v1.lane_promote(bigint) rename to lane_promote_itself;
create function pawl_v1.lane_promote(p_lane bigint) returns table (outcome text, detail jsonb) language plpgsql as $$
begin
  perform nextval('public.promotes');
  return query select * from pawl_v1.lane_promote_itself(p_lane);
end $$`)
			c.config.Poll = time.Hour
			began, proceed := make(chan struct{}, 1), make(chan struct{})
			c.handlers = []job.Handler{order{Form: form.form, Lanes: true}.handler(c.pool)}
			c.config.Middleware = []job.Middleware{func(ctx context.Context, call job.Call, next func(context.Context) error) error {
				if string(call.Jobs[0].Payload) != "0" {
					return next(ctx)
				}
				began <- struct{}{}
				<-proceed
				if form.err != nil {
					return form.err
				}
				return next(ctx)
			}}
			c.inLane("l", job.LanePark, "0", "1")
			c.hire()
			<-began
			release := c.lockLane("l")
			close(proceed)
			c.until("the worker tries to promote", "select count(*) from promotes as p where p.is_called", 1)
			c.wantCount("select count(*) from ran where seq = 1", 0)
			release()
			c.until("the next does not run", "select count(*) from ran where seq = 1", 1)
		})
	}
}

// If a process dies before it promotes, the workers' lane sweep promotes the next job.
func TestLane_SweepPromotesAfterADeath(t *testing.T) {
	t.Parallel()
	c := setupCrew(t, ran)
	c.register()
	c.inLane("l", "", "0", "1", "2")
	j := c.claim()
	release := c.lockLane("l")
	c.mustFinish(j)
	release()
	c.wantCount("select count(*) from pawl.job where lane_head", 0)
	c.config.Poll = time.Hour
	c.handlers = []job.Handler{order{Lanes: true}.handler(c.pool)}
	c.hire()
	c.untilDone()
	c.wantCount("select count(*) from ran where seq in (1, 2)", 2)
}

// If a lane's head becomes a dead letter, the lane follows its policy. A retried job keeps
// its turn (trap T41: the lane neither retries forever nor stops silently).
func TestT41_PoisonHead(t *testing.T) {
	t.Parallel()
	for policy, after := range map[job.LanePolicy][]string{
		"":            {"dead_letter", "waiting", "waiting"},
		job.LaneBlock: {"dead_letter", "waiting", "waiting"},
		job.LanePark:  {"dead_letter"},
		job.LaneSkip:  {"dead_letter"},
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
				if string(j.Payload) == poison {
					return errors.New("boom")
				}
				return apply(ctx, tx, j)
			}
			for _, payload := range []string{poison, "", ""} {
				c.enqueue(job.Request{Queue: "q", Kind: "k", Lane: "l", LanePolicy: policy, Payload: []byte(payload), MaxAttempts: 3})
			}
			c.hire()
			c.until("no dead letter", "select count(*) from pawl.job where status = 'dead_letter'", 1)
			c.until("others are not as they should be", "select count(*) from pawl.job", len(after))
			c.wantText("select string_agg(j.status, ' ' order by j.position) from pawl.job as j", strings.Join(after, " "))
			c.wantDeadLetter(3, "boom")
			c.wantCount("select count(*) from pawl_v1.lanes where head_status = 'dead_letter' and waiting = 2", len(after)/3)
		})
	}
}

// A request sets the lane, alone and in a batch, and the claimed job has it.
func TestEnqueue_Lane(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.inLane("account 17", job.LanePark, "0")
	_, err := job.EnqueueMany(t.Context(), b.pool, []job.Request{
		{Queue: "q", Kind: "k", Lane: "account 17", Payload: []byte("1")},
		{Queue: "q", Kind: "k", Payload: []byte("none")},
		{Queue: "q", Kind: "k", Lane: "account 18", Payload: []byte("0")},
		{Queue: "q", Kind: "k", Lane: "account 18", Payload: []byte("1")},
		{Queue: "other", Kind: "k", Lane: "account 18", Payload: []byte("0")},
	})
	b.must(err)
	jobs := b.claimUpTo(10)
	if len(jobs) != 3 || jobs[0].Lane != "account 17" || jobs[1].Lane != "" || jobs[1].Position != 0 || jobs[2].Lane != "account 18" ||
		jobs[0].Position == 0 || jobs[2].Position <= jobs[0].Position || string(jobs[2].Payload) != "0" {
		t.Fatalf("claimed %+v", jobs)
	}
	b.mustFinish(jobs[0])
	if next := b.claimUpTo(10); len(next) != 1 || next[0].Lane != "account 17" || string(next[0].Payload) != "1" || next[0].Position <= jobs[0].Position {
		t.Errorf("claimed %+v", next)
	}
	b.wantCount("select count(*) from pawl.lane where name = 'account 17' and policy = 'park'", 1)
	b.wantCount("select count(*) from pawl.lane where name = 'account 18' and policy = 'block'", 2)
}

func TestEnqueue_LaneRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	long := strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		request job.Request
		want    error
	}{
		"policy without a lane": {job.Request{Queue: "q", Kind: "k", LanePolicy: job.LanePark}, pawl.ErrArgumentInvalid},
		"unknown policy":        {job.Request{Queue: "q", Kind: "k", Lane: "l", LanePolicy: "drop"}, pawl.ErrArgumentInvalid},
		"long name":             {job.Request{Queue: "q", Kind: "k", Lane: long}, pawl.ErrScopeInvalid},
	} {
		if _, err := job.Enqueue(t.Context(), b.pool, c.request); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if _, err := job.EnqueueMany(t.Context(), b.pool, []job.Request{c.request}); !errors.Is(err, c.want) {
			t.Errorf("%s, many: %v, want %v", name, err, c.want)
		}
	}
	_, err := job.EnqueueMany(t.Context(), b.pool, []job.Request{
		{Queue: "q", Kind: "k", Lane: "a", LanePolicy: job.LanePark}, {Queue: "q", Kind: "k"}, {Queue: "q", Kind: "k", Lane: "b"}})
	if !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("two policies: %v", err)
	}
	b.wantCount("select count(*) from pawl.job", 0)
	b.wantCount("select count(*) from pawl.lane", 0)
}
