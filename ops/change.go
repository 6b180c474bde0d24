package ops

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
)

// A Change is one record of the audit.
type Change struct {
	ID     int64     `json:"id"`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Verb   string    `json:"verb"` // the SQL function: "job_retry"
	Reason string    `json:"reason"`
	// the row without its payload, but with the payload's length and SHA-256
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"` // null: deleted
}

// changes reads the newest audit records of one thing, oldest first.
func changes(ctx context.Context, db pawl.DB, kind string, names ...string) ([]Change, error) {
	rows, err := catalog.Changes[Change](ctx, db, changeLimit, kind, names...)
	return listed(rows), err
}
