package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The scripts of the floors. Those of Pawl call its functions as the client does, in the same
// transactions.
const (
	insertOne  = "insert into pawl.job (queue, kind, payload) values ('bench', 'bench', '{\"at\":0}');\n"
	insertMany = "insert into pawl.job (queue, kind, payload) select 'bench', 'bench', '{\"at\":0}' from generate_series(1, 1000);\n"
	// claim sets :ids and :fences for the next statement.
	claim = "select coalesce(array_agg(c.id), '{}') as ids, coalesce(array_agg(c.fence), '{}') as fences" +
		" from pawl_v1.job_claim('bench', 1, 100) as c \\gset\n"
	finish   = "select count(*) from pawl_v1.job_finish_many(:ids, :fences, '{\"skip_stale\": true}');\n"
	noopSQL  = claim + finish
	batchSQL = claim + "begin;\nselect count(*) from pawl_v1.job_hold_many(:ids, :fences);\n" +
		"insert into effect (job, by) select j.id, 'bench' from unnest(:ids::bigint[]) as j (id);\n" + finish + "commit;\n"
	// loopSQL is the handwritten loop for one job.
	loopSQL = "begin;\nselect t.id from todo as t order by t.id limit 1 for update skip locked \\gset\n" +
		"insert into effect (job, by) values (:id, 'bench');\ndelete from todo where id = :id;\ncommit;\n"
)

// register creates the worker row under which the scripts claim.
const register = "select count(*) from pawl_v1.worker_register('pgbench', '12 hours')"

// floorFor runs a script for as long as enqueueing is measured. Each transaction counts as each
// jobs.
func floorFor(script string, clients, each int) measure {
	return func(ctx context.Context, b *bed, s scale) (Round, error) {
		return untilMeasured(max(1, int(s.enqueue/time.Second)), func(seconds int) (Round, error) {
			return b.pgbench(ctx, script, clients, each, "-T", strconv.Itoa(seconds))
		})
	}
}

// untilMeasured calls measure again after a lock timeout, and for twice as long if no transaction
// ended.
func untilMeasured(seconds int, measure func(seconds int) (Round, error)) (Round, error) {
	for try := 1; ; try++ {
		r, err := measure(seconds)
		switch {
		case err == nil || try == tries:
			return r, err
		case errors.Is(err, errNoTransaction):
			seconds *= 2
		case !strings.Contains(err.Error(), "lock timeout"):
			return r, err
		}
	}
}

// floorDrain drains n jobs with a script whose transactions each take up to each jobs.
func floorDrain(script string, clients, each, n int) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		turns := max(1, int(float64(n)*s.work)/each/clients)
		// More than needed, so that SKIP LOCKED always finds enough.
		if err := b.fill(ctx, turns*each*clients+clients*each); err != nil {
			return r, err
		}
		if _, ours := b.contender.(*pawlQueue); ours {
			if _, err := b.pool.Exec(ctx, register); err != nil {
				return r, err
			}
		}
		return b.pgbench(ctx, script, clients, each, "-t", strconv.Itoa(turns))
	}
}

// tries is how often a script runs before a lock timeout, or a run without a transaction, counts as
// an error. A claim waits 50 ms for any lock, including the one for extending a table. On a
// stalling disk it fails with 55P03. A consumer releases the delivery, but pgbench stops.
const tries = 5

// errNoTransaction is the error of a run in whose time no transaction ended, because the machine
// stalled. pgbench then exits with 0 and prints no rate.
var errNoTransaction = errors.New("no transaction ended in the time of the run")

var (
	perSecond = regexp.MustCompile(`tps = ([\d.]+) \(without initial connection time\)`)
	processed = regexp.MustCompile(`actually processed: (\d+)`)
)

func (b *bed) pgbench(ctx context.Context, script string, clients, each int, length ...string) (r Round, err error) {
	file, err := os.CreateTemp("", "pawl-bench-*.sql")
	if err != nil {
		return r, err
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString(script); err != nil {
		return r, err
	}
	_ = file.Close()
	if err := b.ready(ctx); err != nil {
		return r, err
	}
	m, err := b.host.meter(ctx)
	if err != nil {
		return r, err
	}
	args := append(length, "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(2, clients)), "-f", file.Name(), b.url)
	out, err := exec.CommandContext(ctx, filepath.Join(b.host.server.BinDir(), "pgbench"), args...).CombinedOutput()
	rate, count := perSecond.FindSubmatch(out), processed.FindSubmatch(out)
	if err == nil && count != nil && string(count[1]) == "0" {
		return r, errNoTransaction
	}
	if err != nil || rate == nil || count == nil {
		return r, fmt.Errorf("pgbench: %v: %.500s", err, strings.TrimSpace(string(out)))
	}
	tps, err := strconv.ParseFloat(string(rate[1]), 64)
	if err != nil {
		return r, err
	}
	transactions, err := strconv.Atoi(string(count[1]))
	if err != nil {
		return r, err
	}
	r.Value = tps * float64(each)
	return r, m.charge(ctx, &r, transactions*each)
}
