package metrics

import (
	"context"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/ops"
)

// A Read is one query of the database.
type Read struct {
	Name  string
	How   string // access path: an index, or a whole table
	Grows string // the number with which its cost grows

	ask func(context.Context, pawl.DB) ([]Sample, error)
}

// The names of the reads.
const (
	readDue      = "due"
	readDead     = "dead"
	readWorkers  = "workers"
	readCommands = "commands"
	readJobs     = "jobs"
)

// Reads returns the reads in the order in which they run, the most expensive last.
func Reads() []Read {
	return []Read{
		{readDue, "index `job_claim`, by jumps", "queues that have pending jobs", due},
		{readDead, "index `job_dead`", "dead letters, cancelled jobs and jobs of unknown outcome", dead},
		{readWorkers, "table `worker`", "running workers", workers},
		{readCommands, "index `command_stale`", "commands under a lease or unknown", commands},
		{readJobs, "table `job`, all of it, and table `worker`", "jobs that have not finished, and running workers", jobs},
	}
}

// outboxQueue is the prefix of the queue names of sinks.
const outboxQueue = "outbox/"

// most bounds the rows of one query about queues.
const most = 1000

func jobs(ctx context.Context, db pawl.DB) (samples []Sample, err error) {
	counts, err := catalog.JobCounts(ctx, db, most)
	if err != nil {
		return nil, err
	}
	served, err := catalog.QueuesServed(ctx, db, outboxQueue, most)
	pending, oldest := map[string]int{}, map[string]time.Duration{}
	// a sink with a relay and nothing to publish has 0 and is not missing
	for _, queue := range served {
		pending[strings.TrimPrefix(queue, outboxQueue)] = 0
	}
	for _, c := range counts {
		samples = append(samples, Sample{Jobs, []string{c.Queue, c.Status}, float64(c.Jobs)})
		sink, isSink := strings.CutPrefix(c.Queue, outboxQueue)
		if !isSink {
			continue
		}
		switch ops.Status(c.Status) {
		case ops.StatusDeadLetter, ops.StatusCancelled:
			pending[sink] += 0
		default:
			pending[sink] += c.Jobs
			oldest[sink] = max(oldest[sink], c.ReadAt.Sub(c.Oldest))
		}
	}
	for sink, n := range pending {
		samples = append(samples, Sample{OutboxPending, []string{sink}, float64(n)}, Sample{OutboxLagSeconds, []string{sink}, oldest[sink].Seconds()})
	}
	return samples, err
}

func due(ctx context.Context, db pawl.DB) (samples []Sample, err error) {
	queues, err := catalog.JobDue(ctx, db, most)
	for _, q := range queues {
		samples = append(samples, Sample{OldestDueSeconds, []string{q.Queue}, max(0, q.ReadAt.Sub(q.Due)).Seconds()})
	}
	return samples, err
}

func dead(ctx context.Context, db pawl.DB) (samples []Sample, err error) {
	counts, err := catalog.DeadCounts(ctx, db, most)
	lanes := map[string]int{}
	for _, c := range counts {
		samples = append(samples, Sample{DeadLetters, []string{c.Queue, c.Status}, float64(c.Jobs)})
		lanes[c.Queue] += c.Heads
	}
	for queue, n := range lanes {
		samples = append(samples, Sample{BlockedLanes, []string{queue}, float64(n)})
	}
	return samples, err
}

func workers(ctx context.Context, db pawl.DB) ([]Sample, error) {
	n, err := catalog.WorkerCounts(ctx, db)
	return []Sample{
		{Workers, []string{"alive"}, float64(n.Alive)}, {Workers, []string{"silent"}, float64(n.All - n.Alive)},
		{WorkerWakeups, []string{"on"}, float64(n.Wakeable)}, {WorkerWakeups, []string{"off"}, float64(n.Alive - n.Wakeable)},
	}, err
}

func commands(ctx context.Context, db pawl.DB) ([]Sample, error) {
	unknown, overdue, err := catalog.StaleCommandCounts(ctx, db)
	return []Sample{{StaleCommands, []string{"unknown"}, float64(unknown)}, {StaleCommands, []string{"processing"}, float64(overdue)}}, err
}
