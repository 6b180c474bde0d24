package pawltest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/ops"
)

const (
	page     = 1000 // the most that ops reads at once
	mostTold = 20   // lines in a message
)

// A standing is a snapshot of some queues.
type standing struct {
	jobs  []ops.Job // in the order of their ids
	modes map[string]string
	// headless are lanes, by queue and name, with waiting jobs but no head.
	headless map[[2]string]bool
}

// look reads all queues in one snapshot. A job that a handler enqueues into another queue is
// visible before the handler's own job is gone.
func look(ctx context.Context, pool *pgxpool.Pool, queues []string) (s standing, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, pool, snapshot, func(tx pgx.Tx) error {
		s = standing{modes: map[string]string{}, headless: map[[2]string]bool{}}
		for _, q := range queues {
			jobs, err := jobsOf(ctx, tx, ops.Jobs{Queue: q})
			if err != nil {
				return err
			}
			s.jobs = append(s.jobs, jobs...)
			if err := s.lanes(ctx, tx, q); err != nil {
				return err
			}
		}
		set, err := all(func(after string) (ops.Page[ops.Queue], error) {
			return ops.Queues{After: after, Limit: page}.List(ctx, tx)
		})
		for _, q := range set {
			s.modes[q.Name] = q.Mode
		}
		return err
	})
	return s, err
}

func (s *standing) lanes(ctx context.Context, tx pgx.Tx, queue string) error {
	lanes, err := all(func(after string) (ops.Page[ops.Lane], error) {
		return ops.Lanes{Queue: queue, After: after, Limit: page}.List(ctx, tx)
	})
	for _, l := range lanes {
		s.headless[[2]string{queue, l.Name}] = l.Head == 0 && l.Waiting > 0
	}
	return err
}

// claimable reports whether the mode of its queue allows claiming the job.
func (s *standing) claimable(j ops.Job) bool {
	switch s.modes[j.Queue] {
	case ops.QueuePaused:
		return false
	case ops.QueueDraining:
		return j.Attempts > 0 || j.Crashes > 0
	}
	return true
}

// moves reports whether the status of a job that is not pending will soon change by itself.
func (s *standing) moves(j ops.Job) bool {
	return j.Status == ops.StatusProcessing || j.Status == ops.StatusWaiting && s.headless[[2]string{j.Queue, j.Lane}]
}

func due(j ops.Job) bool { return !j.AvailableAt.After(j.ReadAt) }

func all[T any](read func(after string) (ops.Page[T], error)) (rows []T, err error) {
	for after := ""; ; {
		some, err := read(after)
		if rows = append(rows, some.Rows...); err != nil || some.Next == "" {
			return rows, err
		}
		after = some.Next
	}
}

func listed(jobs []ops.Job) string {
	var lines strings.Builder
	for i, j := range jobs {
		if i == mostTold {
			fmt.Fprintf(&lines, "\n\tand %d more", len(jobs)-i)
			break
		}
		fmt.Fprintf(&lines, "\n\t%s", told(j))
	}
	return lines.String()
}

func told(j ops.Job) string {
	text := fmt.Sprintf("job %d, kind %q in queue %q: %s, attempt %d of %d", j.ID, j.Kind, j.Queue, j.Status, j.Attempts, j.MaxAttempts)
	if !due(j) {
		text += fmt.Sprintf(", not before %s", j.AvailableAt.UTC().Format(time.RFC3339))
	}
	if j.LastError != "" {
		text += ", last error: " + j.LastError
	}
	return text
}
