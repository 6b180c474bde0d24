package contract

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// LaneRunRow is a job that waits behind a head, as returned by lane_run.
type LaneRunRow struct {
	Head, ID    int64
	Kind        string
	Payload     []byte
	Headers     map[string]any
	MaxAttempts int
	CreatedAt   time.Time
	Place       Place
}

const runSQL = "select r.head, r.id, r.kind, r.payload, r.headers, r.max_attempts, r.created_at, r.detail from pawl_v1.lane_run($1, $2, $3) as r"

// LaneRun calls pawl_v1.lane_run.
func LaneRun(ctx context.Context, db DB, heads []Holding, limit int) ([]LaneRunRow, error) {
	return many(ctx, db, "lane.run", runSQL, append(identities(heads), limit), func(row pgx.CollectableRow) (r LaneRunRow, err error) {
		return r, row.Scan(&r.Head, &r.ID, &r.Kind, &r.Payload, &r.Headers, &r.MaxAttempts, &r.CreatedAt, &r.Place)
	})
}

// LaneFinishRow is the result of lane_finish for one head.
type LaneFinishRow struct {
	ID      int64
	Outcome string // "finished", "stale" or "locked"
	Members int
	Lanes   Lanes // of all, in the first row
}

const laneFinishSQL = "select f.id, f.outcome, f.members, f.detail from pawl_v1.lane_finish($1, $2, $3) as f"

// LaneFinish calls pawl_v1.lane_finish.
func LaneFinish(ctx context.Context, db DB, heads []Holding, members []int64) ([]LaneFinishRow, error) {
	if members == nil {
		members = []int64{}
	}
	return many(ctx, db, "lane.finish", laneFinishSQL, append(identities(heads), members), func(row pgx.CollectableRow) (r LaneFinishRow, err error) {
		return r, row.Scan(&r.ID, &r.Outcome, &r.Members, &r.Lanes)
	})
}

// Ended is the error with which a handler of package outbox reports that it ended the job and its
// run itself.
type Ended struct {
	LaneFinishRow       // Outcome "" or "locked": the end is unknown
	Asked         bool  // an earlier try may have ended it
	Err           error // of the last try
}

func (e *Ended) Error() string { return "the handler has ended the job itself: " + e.Outcome }
