package ops

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
)

// gaugeLimit bounds the rows of one question about queues.
const gaugeLimit = 1000

// A JobCount counts the jobs of one queue and status.
type JobCount struct {
	Queue  string
	Status Status
	Jobs   int
	Oldest time.Time // when the first of them was enqueued
	ReadAt time.Time // the database's clock at the reading
}

// JobCounts counts all jobs by queue and status, the first 1000 of such pairs. It reads the whole table of jobs.
func JobCounts(ctx context.Context, db DB) ([]JobCount, error) {
	rows, err := contract.JobCounts(ctx, db, gaugeLimit)
	if err != nil {
		return nil, err
	}
	counts := make([]JobCount, len(rows))
	for i, r := range rows {
		counts[i] = JobCount{r.Queue, Status(r.Status), r.Jobs, r.Oldest, r.ReadAt}
	}
	return counts, nil
}

// A QueueDue says how long a queue keeps its jobs waiting for a worker.
type QueueDue struct {
	Queue  string
	Due    time.Time // of the pending job that is due first; may lie ahead
	ReadAt time.Time // the database's clock at the reading
}

// Overdue is how long that job has been due; 0 if it is not due yet.
func (q QueueDue) Overdue() time.Duration { return max(0, q.ReadAt.Sub(q.Due)) }

// QueuesDue returns the queues with pending jobs, the first 1000 by name. It reads four entries of an index for each, however many
// jobs there are.
func QueuesDue(ctx context.Context, db DB) ([]QueueDue, error) {
	rows, err := contract.JobDue(ctx, db, gaugeLimit)
	if err != nil {
		return nil, err
	}
	queues := make([]QueueDue, len(rows))
	for i, r := range rows {
		queues[i] = QueueDue(r)
	}
	return queues, nil
}

// A DeadCount counts the jobs of one queue that nobody tries again until an operator decides.
type DeadCount struct {
	Queue        string
	Status       Status // dead_letter or unknown
	Jobs         int
	BlockedLanes int // lanes that stand because such a job has the turn
}

// DeadCounts counts them by queue and status, the first 1000 of such pairs. It reads them all through an index.
func DeadCounts(ctx context.Context, db DB) ([]DeadCount, error) {
	rows, err := contract.DeadCounts(ctx, db, gaugeLimit)
	if err != nil {
		return nil, err
	}
	counts := make([]DeadCount, len(rows))
	for i, r := range rows {
		counts[i] = DeadCount{r.Queue, Status(r.Status), r.Jobs, r.Heads}
	}
	return counts, nil
}

// WorkerCount counts the registered workers.
type WorkerCount struct {
	Alive  int // heard of within their lease
	Silent int // not: what they hold is being taken back, if anybody sweeps
}

// CountWorkers reads the whole table of workers, which has a row for each that runs.
func CountWorkers(ctx context.Context, db DB) (WorkerCount, error) {
	all, alive, err := contract.WorkerCounts(ctx, db)
	return WorkerCount{Alive: alive, Silent: all - alive}, err
}

// QueuesServed returns the queues that live workers work on and whose names begin with prefix, in the order of their names, the first
// 1000. An empty prefix means all of them. It reads the table of workers, whether or not the queues have jobs.
func QueuesServed(ctx context.Context, db DB, prefix string) ([]string, error) {
	return contract.QueuesServed(ctx, db, prefix, gaugeLimit)
}

// StaleCommandCount counts leased commands that nobody may finish without help.
type StaleCommandCount struct {
	Unknown int // may have taken effect, until somebody finds out
	Overdue int // their lease is over: the next claim takes them over, or makes them unknown
}

// CountStaleCommands reads all commands that are under a lease or unknown, through an index. Claims that were committed
// without an end, which view stale_commands shows too, are not among them.
func CountStaleCommands(ctx context.Context, db DB) (StaleCommandCount, error) {
	unknown, overdue, err := contract.StaleCommandCounts(ctx, db)
	return StaleCommandCount{Unknown: unknown, Overdue: overdue}, err
}
