package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/ops"
)

// A disturbance runs beside the claims until ctx ends. It returns a description of what it did, and
// an error if it did nothing.
type disturbance func(ctx context.Context, b *bed) (said string, err error)

// purgeAge is the least age that a purge accepts for a consumer that never reported its retention.
// The rows are up to 28 days old.
const purgeAge = 14 * 24 * time.Hour

func undisturbed(ctx context.Context, _ *bed) (string, error) {
	<-ctx.Done()
	return "", nil
}

// purging purges the inbox as pawl purge does, and repeats when nothing is left.
func purging(ctx context.Context, b *bed) (string, error) {
	purged, took := 0, time.Duration(0)
	for ctx.Err() == nil {
		rule := ops.PurgeRule{Table: ops.TableInbox, Consumer: "bench", OlderThan: purgeAge}
		start := time.Now()
		t, err := ops.Purge(ctx, b.pool, rule, ops.By{Actor: "bench", Reason: "claims are timed"}, nil)
		if err != nil && ctx.Err() == nil {
			return "", err
		}
		if t.Done > 0 {
			took += time.Since(start)
		}
		purged += t.Done
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	if purged == 0 {
		return "", errors.New("the purge deleted nothing: ask for more keys")
	}
	return fmt.Sprintf("%s keys purged in %.1f s", number(float64(purged)), took.Seconds()), nil
}

// vacuuming vacuums jobs and inbox in turn, as thoroughly as possible without blocking readers. It
// reads every page. It purges some keys before each round, so that it also scans every index.
func vacuuming(ctx context.Context, b *bed) (string, error) {
	var begun, ended, dead int
	for ctx.Err() == nil {
		var purged int
		err := b.pool.QueryRow(ctx, "select p.purged from pawl_v1.inbox_purge('bench', $1, 1000) as p", purgeAge.Milliseconds()).Scan(&purged)
		for _, table := range []string{"job", "inbox"} {
			if err == nil {
				begun++
				_, err = b.pool.Exec(ctx, "vacuum (disable_page_skipping, index_cleanup on) pawl."+table)
			}
			if err == nil {
				ended++
			}
		}
		if err != nil && ctx.Err() == nil {
			return "", err
		}
		dead += purged
	}
	if begun < 2 || dead == 0 {
		return "", fmt.Errorf("%d vacuums began, of %d dead keys: ask for more keys", begun, dead)
	}
	return fmt.Sprintf("%d vacuums began, %d ended", begun, ended), nil
}

// claimsBeside measures claims at half of the rate that workers sustain without a disturbance.
func claimsBeside(load *halfLoad, d disturbance) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		timer, done, err := b.timed(ctx)
		if err != nil {
			return r, err
		}
		defer done()
		if err := b.ready(ctx); err != nil {
			return r, err
		}
		var ended atomic.Int64
		stop, err := b.work(ctx, task{form: noop, ended: func(n int) { ended.Add(int64(n)) }})
		if err != nil {
			return r, err
		}
		defer stop()
		half, err := load.of(func() (float64, error) { return b.sustained(ctx, &ended, s) })
		if err != nil {
			return r, err
		}
		said, err := b.beside(ctx, d, func() error {
			if err := b.offer(ctx, half, s.warm, func() {}); err != nil {
				return err
			}
			err := b.offer(ctx, half, s.clean, func() { timer.record(true) })
			timer.record(false)
			return err
		})
		if err != nil {
			return r, err
		}
		r.Said = fmt.Sprintf("%.0f jobs/s offered", half)
		if said != "" {
			r.Said += "; " + said
		}
		return r, timer.into(&r)
	}
}

// beside runs a disturbance while fn runs.
func (b *bed) beside(ctx context.Context, d disturbance, fn func() error) (said string, err error) {
	disturbed, end := context.WithCancel(ctx)
	defer end()
	failed := make(chan error, 1)
	go func() {
		var err error
		said, err = d(disturbed, b)
		failed <- err
	}()
	err = fn()
	end()
	return said, errors.Join(err, <-failed)
}

func (g growthSizes) claimPlans() []plan {
	if len(g.keys) == 0 {
		return nil
	}
	n := slices.Max(g.keys)
	load := &halfLoad{}
	line := func(name, how string, d disturbance) entry {
		return entry{who("Pawl, "+name, how), fillInbox.of(n), claimsBeside(load, d)}
	}
	title := fmt.Sprintf("A claim at half of what is sustained in quiet, beside %s remembered keys", number(float64(n)))
	return []plan{{Row: Row{ID: "growth-claim", Title: title, Unit: ms, Less: true}, rounds: waitRounds, entries: []entry{
		line("quiet", "job_exchange and job_claim, as the worker calls them", undisturbed),
		line("purge", "ops.Purge of the inbox beside it: the keys older than 14 days, half of them", purging),
		line("vacuum", "vacuum (disable_page_skipping, index_cleanup on) of pawl.job and pawl.inbox beside it, again and again, 1,000 keys purged before each", vacuuming),
	}}}
}
