package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// What kills do to a queue's jobs. Each job writes one row with its number. A process with ten jobs in hand works on them, is killed by
// SIGKILL and replaced, three times. The next is stopped by SIGSTOP: a successor works on until nothing is left or its patience is over,
// and then the stopped process goes on. At the end every job should have left one row.
//
// A handler waits before its row and after it, so that kills hit between claim and row as well as between row and acknowledgement.

const (
	killJobs     = 400
	killTimes    = 3
	killInHand   = 10               // jobs, in each process
	killLease    = time.Second      // or what a contender has in its place
	killPatience = 70 * time.Second // for a successor; River's needs up to 45 s: to be elected, and to look for stuck jobs
)

// heldFor is how long a handler waits before its row, and again after it. Jobs differ, so that ten of them do not keep step.
func heldFor(number int64) time.Duration { return time.Duration(5+number*7%16) * time.Millisecond }

// A victim is a contender whose processes can be killed.
type victim struct {
	spawn    func(ctx context.Context, b *bed) (*worker, error)
	left     string        // the numbers of the jobs that are not done: waiting, in hand, or given up
	age      string        // makes the locks of dead processes old, if the contender cannot be told to take over within a minute
	patience time.Duration // with which a successor is given the time to take over; killPatience if zero
}

// A worker is a process that works on jobs.
type worker struct {
	process *os.Process
	bury    func()
}

// kill measures a victim: rows that are too many and jobs that are lost.
func kill(v victim) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		for i := range killJobs {
			if err := b.enqueue(ctx, payload{At: int64(i + 1)}); err != nil {
				return r, err
			}
		}
		var all []*worker
		defer func() {
			for _, w := range all {
				w.bury()
			}
		}()
		next := func() (*worker, error) {
			if v.age != "" {
				if _, err := b.pool.Exec(ctx, v.age); err != nil {
					return nil, err
				}
			}
			w, err := v.spawn(ctx, b)
			if err == nil {
				all = append(all, w)
			}
			return w, err
		}
		w, err := next()
		for n := 1; n <= killTimes && err == nil; n++ {
			if err = b.progress(ctx, v, n); err != nil {
				break
			}
			w.bury()
			w, err = next()
		}
		if err == nil {
			err = b.stopAndGoOn(ctx, v, w, next)
		}
		if err != nil {
			return r, err
		}
		b.untilDrained(ctx, v, killPatience)
		time.Sleep(killLease) // a job that two processes had in hand is gone when the first of them ends it
		t, err := b.tally(ctx, v)
		r.Value, r.Count, r.Said = float64(t.doubled+t.lost), killJobs, t.String()
		return r, err
	}
}

// progress waits until n of five parts of the jobs have a row, and some rows and milliseconds more, so that no two kills hit the same step
// of a handler, or the same place in a batch.
func (b *bed) progress(ctx context.Context, v victim, n int) error {
	want := killJobs*n/(killTimes+2) + 3*n
	for start := time.Now(); ; time.Sleep(3 * time.Millisecond) {
		t, err := b.tally(ctx, v)
		switch {
		case err != nil:
			return err
		case t.rows >= want:
			time.Sleep(time.Duration(n*7) * time.Millisecond)
			return nil
		case time.Since(start) > killPatience:
			return fmt.Errorf("before signal %d: %d of %d jobs had a row after %v, wanted %d", n, t.rows, killJobs, killPatience, want)
		}
	}
}

// stopAndGoOn freezes w in the middle, has a successor do what it can, and lets w go on.
func (b *bed) stopAndGoOn(ctx context.Context, v victim, w *worker, next func() (*worker, error)) error {
	if err := b.progress(ctx, v, killTimes+1); err != nil {
		return err
	}
	if err := w.process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if _, err := next(); err != nil {
		return err
	}
	time.Sleep(3 * killLease)
	patience := killPatience
	if v.patience > 0 {
		patience = v.patience
	}
	b.untilDrained(ctx, v, patience)
	if err := w.process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	time.Sleep(3 * killLease) // more than any handler needs
	return nil
}

// untilDrained waits until no job is left, or for as long as it has patience.
func (b *bed) untilDrained(ctx context.Context, v victim, patience time.Duration) {
	for start := time.Now(); time.Since(start) < patience && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if t, err := b.tally(ctx, v); err != nil || t.stuck == 0 {
			return
		}
	}
}

// A tally is what became of the jobs.
type tally struct {
	rows    int // jobs with a row
	doubled int // jobs with more than one
	lost    int // jobs that are done, or gone, without one
	stuck   int // jobs that the queue still has
}

func (t tally) String() string {
	return fmt.Sprintf("%d doubled, %d lost, %d stuck of %d; %d SIGKILL, 1 SIGSTOP", t.doubled, t.lost, t.stuck, killJobs, killTimes)
}

// tally counts in one statement, so that a job cannot move while it looks.
func (b *bed) tally(ctx context.Context, v victim) (t tally, err error) {
	err = b.pool.QueryRow(ctx, `
		with left_over as (`+v.left+`), written as (select e.job, count(*) as rows from effect as e group by e.job)
		select count(w.job), count(*) filter (where w.rows > 1), count(*) filter (where w.job is null and l.job is null), count(l.job)
		  from generate_series(1, $1) as n (job)
		  left join written as w on w.job = n.job
		  left join left_over as l on l.job = n.job`, killJobs).Scan(&t.rows, &t.doubled, &t.lost, &t.stuck)
	return t, err
}
