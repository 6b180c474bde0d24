package contract

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// LaneBatchRow is a job that waits behind a head, as returned by lane_batch.
type LaneBatchRow struct {
	Head, ID    int64
	Kind        string
	Payload     []byte
	Headers     map[string]any
	MaxAttempts int
	CreatedAt   time.Time
	Place       LanePosition
}

const laneBatchSQL = "select b.head, b.id, b.kind, b.payload, b.headers, b.max_attempts, b.created_at, b.detail from pawl_v1.lane_batch($1, $2, $3) as b"

// LaneBatch calls pawl_v1.lane_batch.
func LaneBatch(ctx context.Context, db DB, heads []Holding, limit int) ([]LaneBatchRow, error) {
	return many(ctx, db, "lane.batch", laneBatchSQL, append(identities(heads), limit), func(row pgx.CollectableRow) (r LaneBatchRow, err error) {
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
// batch itself.
type Ended struct {
	LaneFinishRow       // Outcome "" or "locked": the end is unknown
	Asked         bool  // an earlier try may have ended it
	Err           error // of the last try
}

func (e *Ended) Error() string { return "the handler has ended the job itself: " + e.Outcome }
