package contract

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// DeliveryKeepArgs are the arguments of delivery_keep.
type DeliveryKeepArgs struct {
	Consumer, MessageID string
	Body                []byte
	Headers             map[string]any
	VerifiedBy          string
	Hash                pawl.Fingerprint
	Landing             *Landing
}

// Landing is how a delivery that is kept would land.
type Landing struct {
	Queue       string         `json:"queue"`
	Kind        string         `json:"kind"`
	Headers     map[string]any `json:"headers,omitempty"`
	Lane        string         `json:"lane,omitempty"`
	LanePolicy  string         `json:"lane_policy,omitempty"`
	MaxAttempts int            `json:"max_attempts,omitempty"`
	Semantic    string         `json:"semantic,omitempty"` // its second key in the inbox
}

// DeliveryKeepStep calls pawl_v1.delivery_keep.
func DeliveryKeepStep(a DeliveryKeepArgs) Step {
	o := Options{}
	set(o, "verified_by", a.VerifiedBy)
	if len(a.Headers) > 0 {
		o["headers"] = a.Headers
	}
	if a.Landing != nil {
		o["hash"], o["landing"] = a.Hash.String(), a.Landing
	}
	return step("delivery.keep", "select k.outcome from pawl_v1.delivery_keep($1, $2, $3, $4::pg_catalog.jsonb) as k",
		[]any{a.Consumer, a.MessageID, octets(a.Body), o.text()}, new(string))
}

// DeliveryRow names a delivery that was kept.
type DeliveryRow struct {
	MessageID  string
	ReceivedAt time.Time
}

// DeliveryList reads a page of the deliveries of a consumer that were kept in an interval, oldest first, behind the row after. Those under
// keys of Pawl's own, which are dead letters, are not among them.
func DeliveryList(ctx context.Context, db DB, consumer string, from, until time.Time, after DeliveryRow, limit int) ([]DeliveryRow, error) {
	return Look(ctx, db, "delivery.list", `select d.message_id, d.received_at
  from pawl.delivery as d
 where d.consumer = $1
   and d.received_at >= $2
   and d.received_at < $3
   and (d.received_at, d.message_id) > ($4, $5)
   and not starts_with(d.message_id, 'pawl/')
 order by d.received_at, d.message_id
 limit $6`, []any{consumer, from, until, after.ReceivedAt, after.MessageID, limit}, func(row pgx.CollectableRow) (r DeliveryRow, err error) {
		err = row.Scan(&r.MessageID, &r.ReceivedAt)
		return r, err
	})
}
