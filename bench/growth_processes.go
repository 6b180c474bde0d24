package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// maxTeam bounds the processes, because max_connections, 100 by default, must allow their pools
	// and presence connections.
	maxTeam   = 8
	teamConns = 10 // per process
	teamTx    = 8  // concurrent transactions per process
)

// teamForm returns the handler's form and the concurrency of each process.
func teamForm(step bool) (form, int) {
	if step {
		return effect, teamTx
	}
	return noop, 1000
}

// teamWorker is the program of each process. Once released, it works until it is killed and reports
// now and then how many jobs have ended.
func teamWorker(ctx context.Context, pool *pgxpool.Pool, step bool) error {
	config := pool.Config()
	config.MaxConns = teamConns
	pool.Close()
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	if err := pool.Ping(ctx); err != nil {
		return err
	}
	pauseHere()
	var ended atomic.Int64
	form, inHand := teamForm(step)
	if _, err := (&pawlQueue{pool: pool}).work(ctx, task{form: form, polite: true, inHand: inHand, ended: func(n int) { ended.Add(int64(n)) }}); err != nil {
		return err
	}
	for range time.Tick(10 * time.Millisecond) {
		fmt.Println("ended", ended.Load())
	}
	return nil
}

// A member is the parent's view of one process.
type member struct {
	*frozen
	ended  atomic.Int64
	share  int64   // of the counted jobs
	before float64 // processor time, in seconds
}

// listen records the process's reports until it is killed.
func (m *member) listen() {
	for {
		text, err := m.hear("ended")
		if err != nil {
			return
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			m.ended.Store(n)
		}
	}
}

// team measures how fast several processes drain jobs, from their release until all jobs are done
// or time is up.
func team(processes int, step bool, jobs int) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		jobs := max(batchSize, int(float64(jobs)*s.work))
		if err := b.fill(ctx, jobs); err != nil {
			return r, err
		}
		if err := b.ready(ctx); err != nil {
			return r, err
		}
		b.pool.Reset() // the processes need the connections
		members := make([]*member, processes)
		for i := range members {
			z, err := raise(ctx, map[bool]string{false: "growth/noop", true: "growth/step"}[step], b.url)
			if err != nil {
				return r, err
			}
			members[i] = &member{frozen: z}
			defer z.bury()
		}
		m, err := b.host.meter(ctx)
		if err != nil {
			return r, err
		}
		ended, took, err := together(ctx, members, jobs, s.drain)
		if err != nil {
			return r, err
		}
		r.Value = float64(ended) / took.Seconds()
		if err := m.charge(ctx, &r, ended); err != nil {
			return r, err
		}
		shares := make([]string, processes)
		for i, z := range members {
			r.ClientCPU += (processCPU(z.cmd.Process.Pid) - z.before) / float64(ended) * 1000
			shares[i] = fmt.Sprintf("%.0f", 100*float64(z.share)/float64(ended))
		}
		r.Said = "shares " + strings.Join(shares, " ") + " %"
		if err := b.killed(ctx, members); err != nil {
			return r, err
		}
		f, _ := teamForm(step)
		return r, b.wantDone(ctx, f, jobs, ended)
	}
}

// together releases the processes and waits until all jobs have ended or limit is over. It returns
// how many have ended and how long that took.
func together(ctx context.Context, members []*member, jobs int, limit time.Duration) (ended int, took time.Duration, err error) {
	start := time.Now()
	for _, m := range members {
		m.before = processCPU(m.cmd.Process.Pid)
		if _, err := m.in.WriteString("go on\n"); err != nil {
			return 0, 0, err
		}
		go m.listen()
	}
	for ended < jobs && time.Since(start) < limit && ctx.Err() == nil {
		time.Sleep(2 * time.Millisecond)
		ended = 0
		for _, m := range members {
			m.share = m.ended.Load()
			ended += int(m.share)
		}
	}
	if ended == 0 && ctx.Err() == nil {
		return 0, 0, fmt.Errorf("no job had ended after %v", limit)
	}
	return ended, time.Since(start), ctx.Err()
}

// killed kills the processes and waits until the server has ended their sessions, because a COMMIT
// that was on its way still happens.
func (b *bed) killed(ctx context.Context, members []*member) error {
	for _, m := range members {
		m.bury()
	}
	b.pool.Reset()
	for sessions, start := 1, time.Now(); sessions > 0; time.Sleep(5 * time.Millisecond) {
		err := b.host.admin.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = $1 and backend_type = 'client backend'", b.name).Scan(&sessions)
		if err == nil && time.Since(start) > 30*time.Second {
			err = fmt.Errorf("%d sessions are left of processes that were killed", sessions)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// processCPU returns the processor time of one process, in seconds.
func processCPU(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, _, own, _ := processTimes(string(text))
	return own
}

func (g growthSizes) processPlans() []plan {
	row := func(id, title, how string, step bool, jobs int) plan {
		title = fmt.Sprintf("%s, by several processes on %d cores beside the server", title, runtime.NumCPU())
		return growthRow(Row{ID: id, Title: title, Unit: perSec, XLabel: "worker processes"}, growthRounds, g.processes, func(n int) entry {
			of := "processes"
			if n == 1 {
				of = "process"
			}
			return entry{grown(n, of, how), pawlSystem, team(n, step, jobs)}
		})
	}
	return []plan{
		row("growth-processes", "Jobs that do nothing: claim to finish", "Handle, 1,000 in hand and a pool of 10 in each", false, 40_000),
		row("growth-processes-step", "Jobs that write one row exactly once, each in a transaction", "HandleTx, 8 in flight and a pool of 10 in each", true, 12_000),
	}
}
