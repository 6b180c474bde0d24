//go:build proof

package job_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/job"
)

// The size of the run. The published figures are for -lanes 1000 -lane-jobs 200 -lane-open 30s.
var (
	lanesFlag    = flag.Int("lanes", 100, "lanes of TestLane_OrderSurvivesKills")
	laneJobsFlag = flag.Int("lane-jobs", 20, "jobs a lane")
	laneOpenFlag = flag.Duration("lane-open", 3*time.Second, "how long a writer keeps the transaction open that enqueued into one of them")
)

// Three worker processes are killed at random moments, one after the other. Two writers keep
// enqueueing, and a third enqueues into a lane and keeps its transaction open. Each lane runs each
// of its jobs once, in order, and no lane stops for good. While the third writer's transaction is
// open, only its lane stops.
func TestLane_OrderSurvivesKills(t *testing.T) {
	t.Parallel()
	r := &laneRun{crew: setupCrew(t, ran), lanes: *lanesFlag, jobs: *laneJobsFlag, open: *laneOpenFlag}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	began := time.Now()

	var busy sync.WaitGroup
	busy.Go(func() { r.write(0, r.lanes/2) })
	busy.Go(func() { r.write(r.lanes/2, r.lanes) })
	done := make(chan struct{})
	kills := 0
	busy.Go(func() { kills = r.killUntil(done, rand.New(rand.NewPCG(seed, 1))) })
	r.holdOpen()
	total := r.lanes*r.jobs + 1
	r.untilRan(total)
	close(done)
	busy.Wait()

	r.wantOrder()
	r.wantCount("select count(*) from ran", total)
	r.wantCount("select count(*) from pawl.job", 0)
	r.report(total, kills, time.Since(began))
}

type laneRun struct {
	*crew
	lanes, jobs int
	open        time.Duration
	opened      time.Time // by the database's clock
	closed      time.Time
}

func laneName(i int) string { return "lane " + strconv.Itoa(i) }

func (r *laneRun) request(lane, seq int) job.Request {
	return job.Request{Queue: "q", Kind: "k", Lane: laneName(lane), Payload: []byte(strconv.Itoa(seq))}
}

// write enqueues the jobs of some lanes: first the first job of each lane, then the second of each.
func (r *laneRun) write(from, to int) {
	for seq := range r.jobs {
		var all []job.Request
		for lane := from; lane < to; lane++ {
			if lane > 0 { // holdOpen writes lane 0
				all = append(all, r.request(lane, seq))
			}
		}
		if _, err := job.EnqueueMany(r.Context(), r.pool, all); err != nil {
			r.Errorf("enqueue %d of lanes %d to %d: %v", seq, from, to, err)
			return
		}
	}
}

// holdOpen fills lane 0, then enqueues one more job into it and keeps that transaction open.
// Meanwhile all other lanes must continue, and lane 0 must not.
func (r *laneRun) holdOpen() {
	r.Helper()
	for seq := range r.jobs {
		r.enqueue(r.request(0, seq))
	}
	tx := r.begin()
	r.must2(job.Enqueue(r.Context(), tx, r.request(0, r.jobs)))
	r.must(r.pool.QueryRow(r.Context(), "select clock_timestamp()").Scan(&r.opened))
	r.untilAllOthersGoOn()
	<-time.After(time.Until(r.opened.Add(r.open))) // the database uses this machine's clock
	r.must(r.pool.QueryRow(r.Context(), "select clock_timestamp()").Scan(&r.closed))
	r.must(tx.Commit(r.Context()))
}

// untilAllOthersGoOn waits until every other lane that has jobs left has run one since r.opened.
func (r *laneRun) untilAllOthersGoOn() {
	r.Helper()
	for deadline := time.Now().Add(5*time.Minute + r.open); ; <-time.After(20 * time.Millisecond) {
		var standing int
		r.must(r.pool.QueryRow(r.Context(), `select count(*) from pawl.lane as l
 where l.name <> 'lane 0'
   and exists (select from pawl.job as j where j.lane_id = l.id)
   and not exists (select from ran as r where r.lane = l.name and r.at > $1)`, r.opened).Scan(&standing))
		if standing == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("%d other lanes stand still while a writer has lane 0 open: %s", standing, r.standing())
		}
	}
}

func (b *bed) must2(_ job.Enqueued, err error) { b.Helper(); b.must(err) }

// killUntil runs three worker processes and kills one about every second, if a job has run since
// the last kill. On a busy machine a process may need longer to start.
func (r *laneRun) killUntil(done <-chan struct{}, random *rand.Rand) (kills int) {
	o := order{Lanes: true, Quiet: true, Lease: 2 * time.Second, Timeout: 10 * time.Second, MaxCrashes: 1000, Concurrency: 8}
	hire := func(i int) *child {
		o.Form = []string{"transactional", "batch", "transactional"}[i]
		if o.Concurrency = 8; o.Form == "batch" {
			o.Concurrency = 100
		}
		return r.process(o)
	}
	crew := []*child{hire(0), hire(1), hire(2)}
	killed, before := time.Now(), 0
	for {
		select {
		case <-done:
			for _, p := range crew {
				p.kill()
			}
			return kills
		case <-time.After(300*time.Millisecond + time.Duration(random.Int64N(int64(1200*time.Millisecond)))):
		}
		var so int
		r.must(r.pool.QueryRow(r.Context(), "select count(*) from ran").Scan(&so))
		if so == before && time.Since(killed) < 20*time.Second {
			continue
		}
		killed, before = time.Now(), so
		i := random.IntN(len(crew))
		crew[i].kill()
		kills++
		crew[i] = hire(i)
	}
}

// untilRan waits for the number of runs. It fails if there is no new run for too long.
func (r *laneRun) untilRan(want int) {
	r.Helper()
	const patience = 30 * time.Second
	last, at := -1, time.Now()
	for {
		var got int
		asked := time.Now()
		r.must(r.pool.QueryRow(r.Context(), "select count(*) from ran").Scan(&got))
		if got >= want {
			return
		}
		if got > last {
			last, at = got, time.Now()
		}
		if time.Since(at) > patience+r.open {
			r.Fatalf("%d of %d have run, and no more for %v: %s", got, want, patience+r.open, r.standing())
		}
		// Counting must not slow down the workers.
		<-time.After(20*time.Millisecond + 10*time.Since(asked))
	}
}

// standing describes the jobs that are left, for a failure message.
func (r *laneRun) standing() (text string) {
	err := r.pool.QueryRow(context.Background(), `select coalesce(string_agg(s.what, '; '), 'nothing is left')
  from (select format('%s: %s %s head %s', l.name, j.status, j.id, j.lane_head) as what
          from pawl.job as j join pawl.lane as l on l.id = j.lane_id order by j.lane_id, j.position limit 20) as s`).Scan(&text)
	if err != nil {
		return err.Error()
	}
	return text
}

func (r *laneRun) wantOrder() {
	r.Helper()
	rows, err := r.pool.Query(r.Context(), `select o.lane, o.seq, o.nth
  from (select lane, seq, row_number() over (partition by lane order by n) - 1 as nth,
               position - lag(position) over (partition by lane order by n) as step from ran) as o
 where o.seq <> o.nth or o.step <= 0
 limit 10`)
	r.must(err)
	var lane string
	var seq, nth int
	_, err = pgx.ForEachRow(rows, []any{&lane, &seq, &nth}, func() error {
		r.Errorf("%s: job %d ran as number %d", lane, seq, nth)
		return nil
	})
	r.must(err)
	// While the transaction was open, its lane ran only the job that already had the turn.
	r.wantCount(fmt.Sprintf("select greatest(count(*) - 1, 0) from ran where lane = 'lane 0' and at between '%s' and '%s'",
		r.opened.Format(time.RFC3339Nano), r.closed.Format(time.RFC3339Nano)), 0)
}

// report logs the run: the pauses between two jobs of a lane, except for lane 0.
func (r *laneRun) report(total, kills int, took time.Duration) {
	r.Helper()
	var p50, p99, most float64
	r.must(r.pool.QueryRow(r.Context(), `select percentile_cont(0.5) within group (order by g.gap), percentile_cont(0.99) within group (order by g.gap), max(g.gap)
  from (select extract(epoch from at - lag(at) over (partition by lane order by n))::float8 as gap from ran where lane <> 'lane 0') as g`).Scan(&p50, &p99, &most))
	r.Logf("counted: lanes: %d lanes, %d jobs, each ran once and in order, %d processes killed, a writer open for %v: %v, %.0f jobs/s; between two jobs of a lane p50 %.3f s, p99 %.3f s, at most %.1f s",
		r.lanes, total, kills, r.closed.Sub(r.opened).Round(time.Millisecond), took.Round(time.Millisecond),
		float64(total)/took.Seconds(), p50, p99, most)
}
